//! SQL over drives: the library and the program, beside DataFusion's own reading, DuckDB and GNU find.

mod conditions;
mod fixture;
mod program;
mod tables;
