import { sizedCache } from "../../../../kit/sized-cache.ts";
import type { GenerationKey } from "../rows.ts";
import { noState, type StateRow } from "../state-rows.ts";

/** Partitions of which a node knows where a look found nothing, and characters of what it knows them by. */
const looksMax = 10_000;
const looksCharsMax = 8 * 1024 * 1024;

/** Of which events a runner is asked to fold, and which of them its partition has folded already. */
export interface LookBasis {
  key: GenerationKey;
  partition: string;
  /** See `definitionText`. */
  definition: string;
  state: StateRow | undefined;
}

/** Behind `from` and up to `reached`, a runner has nothing to fold. */
interface EmptyLook {
  basis: string;
  from: number;
  reached: number;
}

/** A partition's events follow from these places: a save, failure, resume or rebuild of it changes one. */
export const placeText = (state: StateRow | undefined): string => {
  const { last_position, error_position, skipped_position } = state ?? noState("");
  return `${last_position} ${error_position} ${skipped_position}`;
};

const keyText = ({ key, partition }: LookBasis): string =>
  JSON.stringify([key.environment_id, key.name, key.generation, partition]);

const basisText = ({ definition, state }: LookBasis): string => `${placeText(state)}\n${definition}`;

/**
 * How far polls of one partition have looked in vain. Without it each poll begins at the partition's place,
 * and an event after more of others' than one look covers is never given. What a look rests on is kept with
 * it. A look that rests on something else, or begins earlier, reads again what is forgotten or unknown here.
 */
export class EmptyLooks {
  readonly #kept = sizedCache<EmptyLook>({ entriesMax: looksMax, charsMax: looksCharsMax });

  /** Where to look next instead of after `after`. */
  behind(basis: LookBasis, after: number): number {
    return Math.max(after, this.#find(basis, after)?.reached ?? after);
  }

  /** A look that was to begin after `after` found nothing up to `reached`. */
  note(basis: LookBasis, { after, reached }: { after: number; reached: number }): void {
    if (reached <= after) return;
    const text = basisText(basis);
    const key = keyText(basis);
    const from = this.#find(basis, after)?.from ?? after;
    this.#kept.set(key, { basis: text, from, reached }, key.length + text.length);
  }

  #find(basis: LookBasis, after: number): EmptyLook | undefined {
    const found = this.#kept.get(keyText(basis));
    return found && found.basis === basisText(basis) && after >= found.from ? found : undefined;
  }
}
