//! What a drive's table of partitions says, and what lies in each.

use nearside_fsview::magic::what_is;
use nearside_fsview::partition::{Partition, partitions};
use nearside_fsview::{Error, VolumeInfo};
use nearside_near_data::Failure;

use crate::Retriever;
use crate::media::Media;
use crate::model::of_view;
use crate::view::{Tally, Upto, View};

/// A partition, and what lies in it.
#[derive(Clone, Debug)]
pub struct Part {
    /// What the table says of it.
    pub partition: Partition,
    /// The volume; else what there is in its place, in words.
    pub content: Result<VolumeInfo, String>,
}

impl Retriever {
    /// The partitions of a drive, by number; none where it has no table.
    ///
    /// # Errors
    /// [`Failure`]: a table that contradicts itself, or a read that failed.
    pub async fn partitions<M: Media>(&self, media: &M) -> Result<Vec<Part>, Failure> {
        let tally = Tally::default();
        let whole = View::new(self, media, &tally, 0, media.len());
        let mut found = Vec::new();
        for partition in partitions(&whole).await.map_err(of_view)? {
            let looked =
                self.look_at(media, &tally, (partition.offset, partition.len), Upto::Durable).await?;
            let place = looked.place;
            let content = match looked.volume {
                Ok(volume) => Ok(volume.info().clone()),
                Err(Error::NoFileSystem) => {
                    let view = View::new(self, media, &tally, place.0, place.1);
                    let other = what_is(&view).await.map_err(of_view)?;
                    Err(other.map_or("not known", |other| other.name).to_owned())
                }
                Err(error @ Error::Read { .. }) => return Err(of_view(error)),
                Err(error) => Err(error.to_string()),
            };
            found.push(Part { partition, content });
        }
        Ok(found)
    }
}
