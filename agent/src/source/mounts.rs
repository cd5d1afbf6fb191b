//! The host's mount table.

use super::{Context, Ending, Run};

/// Ends with the loop.
pub(super) async fn run(context: Context) -> Run {
    context.out.closed().await;
    Err(Ending::Stopped)
}
