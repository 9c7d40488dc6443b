//! Lines, words and bytes.

use nearside_ndp::unordered::{CountWords, Gather};
use nearside_ndp::{Counter, Flow};
use nearside_near_data::{Failure, Record};

use super::{ByteOperation, Ended, Job, failure};
use crate::media::Media;
use crate::model::Sink;

/// Counts files.
pub(crate) struct CountFiles(Gather<CountWords>);

impl CountFiles {
    pub(crate) fn new() -> CountFiles {
        CountFiles(Gather::new(CountWords))
    }
}

impl ByteOperation for CountFiles {
    fn begin<S: Sink>(&mut self, _job: &Job<'_, S>) {
        self.0.begin();
    }

    fn is_unordered(&self) -> bool {
        true
    }

    fn piece(&self) -> usize {
        Counter::SUGGESTED_PIECE
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        _media: &M,
        _job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        self.0.feed(offset, bytes).map_err(failure)
    }

    async fn zeros<M: Media>(&mut self, _media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        let flow = self.0.zeros(offset, len).map_err(failure)?;
        Ok(flow.map_or((0, Flow::More), |flow| (len, flow)))
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        _media: &M,
        job: &mut Job<'_, S>,
        _flow: Flow,
    ) -> Result<Ended, Failure> {
        let counted = self.0.finish(job.size).map_err(failure)?;
        Ok(job.pair(Record::Count { lines: counted.lines, words: counted.words, bytes: job.size }))
    }
}
