//! In the making.

use crate::acl::Acl;
use crate::{DirCursor, DirEntry, Error, Ino, Inode, Run, Source, VolumeInfo};

/// The volume's own part of an inode.
#[derive(Clone, Debug)]
pub(crate) struct Body;

/// A volume.
#[derive(Debug, Clone)]
pub struct Volume {
    info: VolumeInfo,
}

impl Volume {
    pub(crate) async fn probe<S: Source>(_source: &S) -> Result<bool, Error> {
        Ok(false)
    }

    pub(crate) async fn open<S: Source>(_source: &S) -> Result<Volume, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) fn info(&self) -> &VolumeInfo {
        &self.info
    }

    pub(crate) fn root(&self) -> Ino {
        Ino(2)
    }

    pub(crate) async fn inode<S: Source>(&self, _: &S, _: Ino) -> Result<Inode, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) async fn lookup<S: Source>(&self, _: &S, _: &Inode, _: &[u8]) -> Result<Option<Ino>, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) async fn read_dir<S: Source>(
        &self,
        _: &S,
        _: &Inode,
        _: DirCursor,
        _: &mut Vec<DirEntry>,
    ) -> Result<Option<DirCursor>, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) async fn map<S: Source>(&self, _: &S, _: &Inode, _: u64) -> Result<Option<Run>, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) async fn inline_data<S: Source>(&self, _: &S, _: &Inode) -> Result<Vec<u8>, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) async fn read_link<S: Source>(&self, _: &S, _: &Inode) -> Result<Vec<u8>, Error> {
        Err(Error::NoFileSystem)
    }

    pub(crate) async fn acl<S: Source>(&self, _: &S, _: &Inode) -> Result<Option<Acl>, Error> {
        Err(Error::NoFileSystem)
    }
}
