//! A map whose copies share what is alike: to copy it is one step, and to change a copy as many as its tree
//! is deep. So a state that follows another costs what is new in it, while the other stays in use.
//!
//! The tree is balanced (AVL), whatever keys it is given: what is from outside cannot make it deep. It is no
//! crate's since it is given back in slices too, where the last of its copies goes.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::Source;
use crate::pace::Pace;

type Link<K, V> = Option<Arc<Node<K, V>>>;

#[derive(Clone)]
struct Node<K, V> {
    key: K,
    value: V,
    /// Of the tree below it, itself included.
    height: u8,
    before: Link<K, V>,
    behind: Link<K, V>,
}

/// A map in the order of its keys.
#[derive(Clone)]
pub(crate) struct Shared<K, V> {
    root: Link<K, V>,
    len: usize,
}

/// Which child of a node.
#[derive(Clone, Copy)]
enum Side {
    Before,
    Behind,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Before => Side::Behind,
            Side::Behind => Side::Before,
        }
    }
}

fn height<K, V>(link: &Link<K, V>) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

impl<K, V> Node<K, V> {
    fn child(&self, side: Side) -> &Link<K, V> {
        match side {
            Side::Before => &self.before,
            Side::Behind => &self.behind,
        }
    }

    fn child_mut(&mut self, side: Side) -> &mut Link<K, V> {
        match side {
            Side::Before => &mut self.before,
            Side::Behind => &mut self.behind,
        }
    }

    fn measure(&mut self) {
        self.height = height(&self.before).max(height(&self.behind)).saturating_add(1);
    }

    /// The child that is too high beside the other.
    fn leans(&self) -> Option<Side> {
        let (before, behind) = (height(&self.before), height(&self.behind));
        match () {
            () if before > behind.saturating_add(1) => Some(Side::Before),
            () if behind > before.saturating_add(1) => Some(Side::Behind),
            () => None,
        }
    }
}

/// Raises a node's child to the node's place.
fn raise<K: Clone, V: Clone>(link: &mut Link<K, V>, side: Side) {
    let Some(mut top) = link.take() else { return };
    let node = Arc::make_mut(&mut top);
    let Some(mut child) = node.child_mut(side).take() else {
        *link = Some(top);
        return;
    };
    let raised = Arc::make_mut(&mut child);
    *node.child_mut(side) = raised.child_mut(side.other()).take();
    node.measure();
    *raised.child_mut(side.other()) = Some(top);
    raised.measure();
    *link = Some(child);
}

/// Balances a node of which a child was changed.
fn settle<K: Clone, V: Clone>(link: &mut Link<K, V>) {
    let Some(shared) = link else { return };
    let node = Arc::make_mut(shared);
    let Some(side) = node.leans() else { return node.measure() };
    let child = node.child_mut(side);
    let inner = child.as_ref().is_some_and(|c| height(c.child(side)) < height(c.child(side.other())));
    if inner {
        raise(child, side.other());
    }
    raise(link, side);
}

fn put<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: K, value: V) -> Option<V> {
    let Some(shared) = link else {
        *link = Some(Arc::new(Node { key, value, height: 1, before: None, behind: None }));
        return None;
    };
    let node = Arc::make_mut(shared);
    let was = match key.cmp(&node.key) {
        Ordering::Less => put(&mut node.before, key, value),
        Ordering::Greater => put(&mut node.behind, key, value),
        Ordering::Equal => return Some(std::mem::replace(&mut node.value, value)),
    };
    if was.is_none() {
        settle(link);
    }
    was
}

fn take_first<K: Clone, V: Clone>(link: &mut Link<K, V>) -> Option<(K, V)> {
    let shared = link.as_mut()?;
    if shared.before.is_some() {
        let first = take_first(&mut Arc::make_mut(shared).before);
        settle(link);
        return first;
    }
    let node = Arc::unwrap_or_clone(link.take()?);
    *link = node.behind;
    Some((node.key, node.value))
}

/// Takes out what is there.
fn take<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: &K) -> Option<V> {
    let shared = link.as_mut()?;
    let gone = match key.cmp(&shared.key) {
        Ordering::Less => take(&mut Arc::make_mut(shared).before, key),
        Ordering::Greater => take(&mut Arc::make_mut(shared).behind, key),
        Ordering::Equal => {
            let Node { value, before, mut behind, .. } = Arc::unwrap_or_clone(link.take()?);
            *link = match take_first(&mut behind) {
                Some((key, value)) => Some(Arc::new(Node { key, value, height: 0, before, behind })),
                None => before,
            };
            Some(value)
        }
    };
    settle(link);
    gone
}

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Shared { root: None, len: 0 }
    }
}

impl<K: Ord, V> Shared<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What is at the key that `place` finds: it says how a key stands to the one that is meant.
    pub(crate) fn find(&self, place: impl Fn(&K) -> Ordering) -> Option<&V> {
        let mut link = &self.root;
        while let Some(node) = link {
            link = match place(&node.key) {
                Ordering::Less => &node.behind,
                Ordering::Greater => &node.before,
                Ordering::Equal => return Some(&node.value),
            };
        }
        None
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(|here| here.cmp(key))
    }

    /// All from the first key on that does not stand before the one that is meant, in order.
    pub(crate) fn from(&self, place: impl Fn(&K) -> Ordering) -> Iter<'_, K, V> {
        let (mut due, mut link) = (Vec::with_capacity(usize::from(height(&self.root))), &self.root);
        while let Some(node) = link {
            link = match place(&node.key) {
                Ordering::Less => &node.behind,
                _ => {
                    due.push(&**node);
                    &node.before
                }
            };
        }
        Iter { due }
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        self.from(|_| Ordering::Greater)
    }

    pub(crate) fn last_key(&self) -> Option<&K> {
        let mut node = self.root.as_ref()?;
        while let Some(behind) = &node.behind {
            node = behind;
        }
        Some(&node.key)
    }
}

impl<K, V> Shared<K, V> {
    /// Gives back what no copy shares, node by node.
    pub(crate) async fn give_back<S: Source>(self, pace: &mut Pace<'_, S>) {
        let mut due: Vec<_> = self.root.into_iter().collect();
        while let Some(shared) = due.pop() {
            pace.step().await;
            if let Some(node) = Arc::into_inner(shared) {
                due.extend(node.before);
                due.extend(node.behind);
            }
        }
    }
}

impl<K: Ord + Clone, V: Clone> Shared<K, V> {
    /// Puts a value at a key; the one that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let was = put(&mut self.root, key, value);
        self.len = self.len.saturating_add(usize::from(was.is_none()));
        was
    }

    /// Takes out what is at a key.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        // The way to what is not there is not to be copied.
        self.get(key)?;
        self.len = self.len.saturating_sub(1);
        take(&mut self.root, key)
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Shared<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Entries in order.
pub(crate) struct Iter<'m, K, V> {
    /// Nodes that come with what is behind them; the next is the last.
    due: Vec<&'m Node<K, V>>,
}

impl<'m, K, V> Iterator for Iter<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.due.pop()?;
        let mut link = &node.behind;
        while let Some(next) = link {
            self.due.push(next);
            link = &next.before;
        }
        Some((&node.key, &node.value))
    }
}

#[cfg(test)]
impl<K: Ord, V> Shared<K, V> {
    /// Nodes that are not of the other as well: what a change has copied or made.
    pub(crate) fn own(&self, other: &Self) -> usize {
        fn nodes<K, V>(link: &Link<K, V>, found: &mut Vec<*const Node<K, V>>) {
            if let Some(node) = link {
                found.push(Arc::as_ptr(node));
                nodes(&node.before, found);
                nodes(&node.behind, found);
            }
        }
        let (mut own, mut others) = (Vec::new(), Vec::new());
        nodes(&self.root, &mut own);
        nodes(&other.root, &mut others);
        let others: std::collections::HashSet<_> = others.into_iter().collect();
        own.iter().filter(|node| !others.contains(*node)).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nearside_random::Rng;

    use super::*;
    use crate::pace::SLICE;
    use crate::pace::still::{Still, now};

    /// The height, with every node balanced.
    fn checked(link: &Link<u64, u64>) -> u8 {
        let Some(node) = link else { return 0 };
        let (before, behind) = (checked(&node.before), checked(&node.behind));
        assert!(before.abs_diff(behind) <= 1);
        assert_eq!(node.height, before.max(behind) + 1);
        node.height
    }

    #[test]
    fn it_is_the_librarys_map_and_copies_stay_as_they_were() {
        for seed in 0..50 {
            let (mut random, mut map, mut plain) = (Rng(seed), Shared::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for step in 0..400 {
                let (key, value) = (random.below(120), random.below(1000));
                match random.below(5) {
                    0 | 1 => assert_eq!(map.remove(&key), plain.remove(&key)),
                    _ => assert_eq!(map.insert(key, value), plain.insert(key, value)),
                }
                checked(&map.root);
                assert_eq!((map.len(), map.last_key()), (plain.len(), plain.keys().next_back()));
                assert_eq!(map.get(&key), plain.get(&key));
                let from = random.below(120);
                assert!(map.from(|here| here.cmp(&from)).eq(plain.range(from..)), "seed {seed}");
                if step % 40 == 0 {
                    kept.push((map.clone(), plain.clone()));
                }
            }
            for (map, plain) in &kept {
                assert!(map.iter().eq(plain));
            }
        }
    }

    #[test]
    fn it_is_given_back_in_slices_and_copies_stay() {
        let mut map = Shared::default();
        for key in 0..10_000u64 {
            map.insert(key, [key; 4]);
        }
        let (mut copy, source) = (map.clone(), Still::default());
        copy.insert(7, [0; 4]);
        now(copy.give_back(&mut Pace::new(&source)));
        assert!(source.pauses.get() <= 3, "{} pauses for what is shared", source.pauses.get());
        assert!(map.iter().map(|(key, value)| (*key, *value)).eq((0..10_000).map(|key| (key, [key; 4]))));
        now(map.give_back(&mut Pace::new(&source)));
        assert!(source.pauses.get() >= 10_000 / SLICE, "{} pauses", source.pauses.get());
    }

    /// However many there are, and in whichever order they came.
    #[test]
    fn a_change_copies_the_way_to_it() {
        let mut map = Shared::default();
        for key in 0..100_000u64 {
            map.insert(key, key);
        }
        checked(&map.root);
        let mut changed = map.clone();
        assert_eq!(changed.own(&map), 0);
        changed.insert(50_000, 1);
        changed.remove(&70_000);
        changed.remove(&200_000);
        changed.insert(100_000, 2);
        assert!((3..120).contains(&changed.own(&map)), "{}", changed.own(&map));
    }
}
