"""Reading rows: files, frames, dialects, schemas and encodings."""
