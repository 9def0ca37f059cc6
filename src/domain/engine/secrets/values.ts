import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Basics } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import * as rows from "./rows.ts";

/** Values of secrets are cached for this long. */
const secretsKeptMs = 1_000;

/** What a value is sealed for: a sealed text that is copied to another row or environment does not open. */
export const sealScopeOf = (environmentId: string, id: string) => `secret/${environmentId}/${id}`;

const environmentsCachedMax = 1_000;

/** Unsealed values by environment, cached for `secretsKeptMs`. */
export function openSecretValues({
  store,
  clock,
  keyring,
}: Basics<"store" | "clock"> & { keyring: Pick<Keyring, "unseal"> }) {
  const kept = ttlCache<{ values: ReadonlyMap<string, string>; unread: ReadonlyMap<string, unknown> }>({
    clock,
    keptMs: secretsKeptMs,
    entriesMax: environmentsCachedMax,
    async read(environmentId) {
      const values = new Map<string, string>();
      const unread = new Map<string, unknown>();
      for (const { id, name, sealed } of await rows.secretsOf(store, environmentId))
        try {
          values.set(name, await keyring.unseal(sealScopeOf(environmentId, id), sealed));
        } catch (error) {
          // Thrown in `of`, and only to functions that declare this secret: others can run without it.
          unread.set(name, error);
        }
      return { values, unread };
    },
  });
  return {
    async of(environmentId: string, names: readonly string[]): Promise<Record<string, string>> {
      const known = await kept.get(environmentId);
      const unread = names.find((name) => known?.unread.has(name));
      if (unread !== undefined) throw known?.unread.get(unread);
      // Not assigned one by one: a secret may be named `__proto__`.
      return Object.fromEntries(
        names.flatMap((name) => {
          const value = known?.values.get(name);
          return value === undefined ? [] : [[name, value]];
        }),
      );
    },
    forget: (environmentId: string) => kept.forget(environmentId),
  };
}

export type SecretValues = ReturnType<typeof openSecretValues>;
