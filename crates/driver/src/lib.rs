//! The host's side: queue pairs, completion policies, initiators
