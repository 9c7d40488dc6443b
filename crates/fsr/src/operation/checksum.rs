//! Checksums: CRC-32C in any order, the others byte after byte.

use nearside_ndp::unordered::{Gather, SumCrc32c};
use nearside_ndp::{Checksum, Flow};
use nearside_near_data::{Digest, Failure, Record};

use super::{ByteOperation, Ended, Job, failure};
use crate::media::Media;
use crate::model::Sink;

/// Sums files.
pub(crate) struct SumFiles {
    digest: Digest,
    checksum: Checksum,
    /// In place of it.
    crc: Option<Gather<SumCrc32c>>,
}

impl SumFiles {
    pub(crate) fn new(digest: Digest) -> SumFiles {
        let crc = (digest == Digest::Crc32c).then(|| Gather::new(SumCrc32c));
        SumFiles { digest, checksum: Checksum::new(digest), crc }
    }
}

impl ByteOperation for SumFiles {
    fn begin<S: Sink>(&mut self, _job: &Job<'_, S>) {
        match &mut self.crc {
            Some(crc) => crc.begin(),
            None => self.checksum.begin(),
        }
    }

    fn is_unordered(&self) -> bool {
        self.crc.is_some()
    }

    fn piece(&self) -> usize {
        self.checksum.suggested_piece()
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        _media: &M,
        _job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        if let Some(crc) = &mut self.crc {
            return crc.feed(offset, bytes).map_err(failure);
        }
        self.checksum.feed(bytes);
        Ok(Flow::More)
    }

    async fn zeros<M: Media>(&mut self, _media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        // Other checksums have no short way.
        let Some(crc) = &mut self.crc else { return Ok((0, Flow::More)) };
        let flow = crc.zeros(offset, len).map_err(failure)?;
        Ok(flow.map_or((0, Flow::More), |flow| (len, flow)))
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        _media: &M,
        job: &mut Job<'_, S>,
        _flow: Flow,
    ) -> Result<Ended, Failure> {
        let value = match &mut self.crc {
            Some(crc) => crc.finish(job.size).map_err(failure)?.to_be_bytes().to_vec(),
            None => self.checksum.value(),
        };
        Ok(job.pair(Record::Digest { kind: self.digest, value: value.into() }))
    }
}
