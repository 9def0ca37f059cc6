import { first } from "./0001_first.ts";
import { cluster } from "./0002_cluster.ts";

/** In order; a landed one is never edited. */
export const migrations = [first, cluster];
