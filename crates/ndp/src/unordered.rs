//! Operations whose blocks may arrive in any order.
