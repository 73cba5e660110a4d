"""Add (or remove) images one after another and print each, until the test kills this: adding.py FOLDER SEED."""

import sys

from pictures import CLASSES, encoded, picture

from shorthash.images import Collection


def main(folder, seed):
    with Collection(folder) as collection:
        for number in range(10**6):
            kind = CLASSES[number % 3]
            image = encoded(picture(kind, (1 + int(seed)) * 10**6 + number))
            report = collection.add_images([(f"{number}.png", image)], labels=[kind])
            sys.stdout.write(f"{report.added[0]} {kind}\n")
            sys.stdout.flush()
            if number % 5 == 4:
                collection.remove([report.added[0]])
                sys.stdout.write(f"{report.added[0]} removed\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
