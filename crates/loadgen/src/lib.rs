//! Load generator, histograms and the floors that figures stand beside
