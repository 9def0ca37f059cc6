import { first } from "./0001_first.ts";

/** In order; a landed one is never edited. */
export const migrations = [first];
