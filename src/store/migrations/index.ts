import { first } from "./0001_first.ts";
import { cluster } from "./0002_cluster.ts";
import { roomForEnds } from "./0003_room_for_ends.ts";
import { explain } from "./0010_explain.ts";

/** In order; a landed one is never edited. */
export const migrations = [first, cluster, roomForEnds, explain];
