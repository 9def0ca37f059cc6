import { sizedCache } from "../../../kit/sized-cache.ts";
import type { Store } from "../../../store/store.ts";
import type { FunctionDefinition } from "./definition.ts";
import { definitionsKeptMax } from "./limits.ts";
import { readVersion } from "./rows.ts";

/** The definition a run is pinned to. */
export type DefinitionAt = (
  environmentId: string,
  functionId: string,
  version: number,
) => Promise<FunctionDefinition>;

/** JSON text of pinned definitions that a node keeps in memory. */
const pinnedCharsMax = 32 * 1024 * 1024;

export function openDefinitionAt(store: Store): DefinitionAt {
  const pinned = sizedCache<FunctionDefinition>({
    entriesMax: definitionsKeptMax,
    charsMax: pinnedCharsMax,
  });
  return async (environmentId, functionId, version) => {
    const key = `${environmentId}\n${functionId}\n${version}`;
    const known = pinned.get(key);
    if (known) return known;
    const found = await readVersion(store, environmentId, functionId, version);
    if (!found)
      throw new Error(`run pinned to version ${version} of ${functionId}, which was never recorded`);
    pinned.set(key, found.definition, found.chars);
    return found.definition;
  };
}
