/** What a node knows of connected workers counts this long, and is read again for a caller after that. */
export const servingKnownMs = 15_000;
export const servingFreshMs = 1_000;
/** Environments whose workers a node follows, how long after the last question, and how many in one query. */
export const servingPlacesMax = 10_000;
export const servingAskedMs = 60 * 60_000;
export const servingSliceMax = 500;
/** Different lists of functions of one environment's connected workers; beyond that nothing is answered. */
export const servingListsMax = 100;
/** How often subscribers are told that a function is unserved. */
export const unservedToldMs = 60_000;
/** Functions of another definition that a worker is told of. */
export const conflictsToldMax = 100;
