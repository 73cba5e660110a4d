from .exports import export_encoder as export_encoder
from .exports import export_index as export_index
from .exports import import_index as import_index
from .saves import describe as describe
from .saves import load as load
from .saves import save as save
from .saves import verify as verify
