/** Levels that one answer goes away from what it is asked about, and things in it. */
export const causalDepthDefault = 10;
export const causalDepthMax = 50;
export const causalThingsDefault = 200;
export const causalThingsMax = 1_000;
/** Runs that one call cancels. */
export const subtreeRunsMax = 1_000;
/** Looks at what the cancelled runs had started meanwhile. */
export const subtreeRoundsMax = 5;
