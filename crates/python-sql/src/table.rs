//! Tables and functions for Python's DataFusion.

use std::ffi::CStr;
use std::sync::Arc;

use datafusion::catalog::{TableFunctionImpl, TableProvider};
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use datafusion_ffi::udtf::FFI_TableFunction;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::running::of_tables;

/// The major version of DataFusion whose interface this is: others lay out differently what they hand over.
pub(crate) const VERSION: u64 = 53;

const TABLE: &CStr = c"datafusion_table_provider";
const FUNCTION: &CStr = c"datafusion_table_function";
const CODEC: &CStr = c"datafusion_logical_extension_codec";

/// A table of drives.
#[pyclass(frozen, module = "nearside_sql")]
pub(crate) struct Table(pub Arc<dyn TableProvider>);

/// A function that makes tables.
#[pyclass(frozen, module = "nearside_sql")]
pub(crate) struct Function(pub Arc<dyn TableFunctionImpl>);

#[pymethods]
impl Table {
    /// What DataFusion takes a table by, of the session that it is for.
    fn capsule<'py>(&self, session: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        let (codec, handle) = (codec(session)?, of_tables()?);
        let table = FFI_TableProvider::new_with_ffi_codec(self.0.clone(), true, Some(handle), codec);
        PyCapsule::new_with_value(session.py(), table, TABLE)
    }
}

#[pymethods]
impl Function {
    /// The same of a function.
    fn capsule<'py>(&self, session: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        let (codec, handle) = (codec(session)?, of_tables()?);
        let function = FFI_TableFunction::new_with_ffi_codec(self.0.clone(), Some(handle), codec);
        PyCapsule::new_with_value(session.py(), function, FUNCTION)
    }
}

/// By which expressions of the session come: with its functions, which this library need not know.
fn codec(session: &Bound<'_, PyAny>) -> PyResult<FFI_LogicalExtensionCodec> {
    let capsule = session.call_method0("__datafusion_logical_extension_codec__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let codec = capsule.pointer_checked(Some(CODEC))?.cast::<FFI_LogicalExtensionCodec>();
    // SAFETY: a capsule of this name holds such a structure (datafusion-ffi), of the version that the package
    // has compared with `VERSION`, for as long as there is the capsule, which outlives this call.
    Ok(unsafe { codec.as_ref() }.clone())
}
