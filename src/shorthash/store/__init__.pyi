from .base import Store as Store
from .base import open_store as open_store
from .items import Items as Items
from .postgres import PostgresStore as PostgresStore
from .sqlite import SQLiteStore as SQLiteStore
