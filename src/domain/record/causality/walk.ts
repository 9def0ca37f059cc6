import { causesOf, effectsOf } from "./looks.ts";
import type { CausalReader } from "./rows.ts";
import { type CausalDirection, type CausalLink, type CausalName, textOf } from "./rules.ts";

export interface Walked {
  /** By text, with the distance from where the walk began: negative for causes. */
  depths: Map<string, { thing: CausalName; depth: number }>;
  links: Map<string, CausalLink>;
  isTruncated: boolean;
}

export interface WalkOptions {
  environmentId: string;
  depth: number;
  most: number;
}

/**
 * Goes away from the things level by level, each level by a few queries for all of it. A thing counts once,
 * at its shortest distance, so that circles end.
 */
export async function walk(
  reader: CausalReader,
  from: readonly CausalName[],
  directions: readonly CausalDirection[],
  { environmentId, depth, most }: WalkOptions,
): Promise<Walked> {
  const walked: Walked = { depths: new Map(), links: new Map(), isTruncated: false };
  for (const thing of from) walked.depths.set(textOf(thing), { thing, depth: 0 });
  for (const direction of directions) {
    const looksOf = direction === "effects" ? effectsOf : causesOf;
    let level = [...from];
    for (let distance = 1; level.length > 0; distance++) {
      const next: CausalName[] = [];
      for (const [kind, own] of Map.groupBy(level, (one) => one.kind)) {
        const ids = own.map(({ id }) => id);
        for (const look of looksOf[kind]) {
          const links = await look(reader, { environmentId, ids, most: most + 1 });
          for (const link of links) {
            const thing = direction === "effects" ? link.effect : link.cause;
            const isNew = !walked.depths.has(textOf(thing));
            if (isNew && (distance > depth || walked.depths.size >= most)) {
              walked.isTruncated = true;
              continue;
            }
            walked.links.set(`${textOf(link.cause)}\n${textOf(link.effect)}`, link);
            if (!isNew) continue;
            walked.depths.set(textOf(thing), {
              thing,
              depth: direction === "effects" ? distance : -distance,
            });
            next.push(thing);
          }
        }
      }
      level = next;
    }
  }
  return walked;
}
