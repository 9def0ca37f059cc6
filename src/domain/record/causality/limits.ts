/** Levels that one answer goes away from what it is asked about, and things in it. */
export const causalDepthDefault = 10;
export const causalDepthMax = 50;
export const causalThingsDefault = 200;
export const causalThingsMax = 1_000;
/** Runs that one call cancels, and runs that it looks at: those that are over lead to others too. */
export const subtreeRunsMax = 1_000;
export const subtreeLookedMax = 20_000;
/** Looks at what the cancelled runs had started meanwhile. */
export const subtreeRoundsMax = 5;
