import { pacedFlush } from "./claim-paced.ts";

/**
 * The same for functions with `pin`: each demand is of one deployment, and passes over runs that belong to
 * another. A claim makes a run that belongs to none its own.
 */
export const claimPinnedFlush = pacedFlush("runs.claim_pinned", true);
