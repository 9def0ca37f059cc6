export const environmentsMax = 1_000;
export const projectsMax = 1_000;
export const orgNameCharsMax = 200;
export const projectNameCharsMax = 200;
export const environmentNameBytesMax = 63;

/**
 * A deleted environment counts as purged no earlier than this after its deletion: a request admitted before
 * has written by then.
 */
export const purgeGraceMs = 60_000;
/**
 * What one slice of a purge aims at, in this process and in a server of its own; and how long one round of
 * slices takes.
 */
export const purgeSliceMs = 5;
export const purgeRemoteSliceMs = 50;
export const purgeRoundMs = 250;
