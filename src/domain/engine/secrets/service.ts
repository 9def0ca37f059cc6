import type { Instant } from "../../../kit/clock.ts";
import { requireStorable } from "../../../kit/event-names.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import { type Basics, type Session, StoreError } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { DefinitionsCache, FunctionRecord } from "../functions/definition.ts";
import type { SealedRow, SecretRow } from "./rows.ts";
import * as rows from "./rows.ts";

/** Values of secrets are cached for this long. */
const secretsKeptMs = 1_000;

/** What a value is sealed for: a sealed text that is copied to another row or environment does not open. */
const sealScopeOf = (environmentId: string, id: string) => `secret/${environmentId}/${id}`;

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

const secretsMax = 1_000;
export const secretNameCharsMax = 200;
const secretBytesMax = 64 * 1024;

export type { SecretRow } from "./rows.ts";

export interface SecretInput {
  name: string;
  value: string;
  description?: string;
}

export type Secrets = ReturnType<typeof openSecrets>;

/** What is announced of a change: never the value. */
export interface SecretFrame {
  change: "created" | "updated" | "deleted";
  environmentId: string;
  name: string;
  at: Instant;
}

export interface SecretsDeps extends Basics<"store" | "clock" | "ids"> {
  keyring: Pick<Keyring, "seal" | "writeSealed">;
  values: SecretValues;
  definitions: Pick<DefinitionsCache, "current">;
  /**
   * Locks the environment against deletion until the transaction ends; throws `not_found` when it is gone.
   */
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** Called after the commit; a hint that may be lost. */
  announce?: (frame: SecretFrame) => void;
}

export function openSecrets(deps: SecretsDeps) {
  const { store, clock, ids, keyring, values, shareEnvironment, announce } = deps;

  const announceChange = (change: SecretFrame["change"], environmentId: string, name: string) =>
    announce?.({ change, environmentId, name, at: clock.now() });

  /** A rename is a deletion and a creation to those who know the secret by its name. */
  function announceRenamed(environmentId: string, before: string, after: string): void {
    if (after === before) return void announceChange("updated", environmentId, after);
    announceChange("deleted", environmentId, before);
    announceChange("created", environmentId, after);
  }

  const write = async (
    environmentId: string,
    work: (session: Session, seal: (id: string, value: string) => string) => Promise<SealedRow>,
  ): Promise<SecretRow> => {
    const { sealed: _, ...shown } = await keyring.writeSealed(async (session) => {
      const row = await work(session, (id, value) => keyring.seal(sealScopeOf(environmentId, id), value));
      return { result: row, sealed: [row.sealed] };
    });
    values.forget(environmentId);
    return shown;
  };

  return {
    ...secretReads(deps),

    async create(environmentId: string, { name, value, description }: SecretInput): Promise<SecretRow> {
      requireStorable("description", description);
      requireName(name);
      requireValue(value);
      const created = await write(environmentId, async (session, seal) => {
        await shareEnvironment(session, environmentId);
        const id = ids.uuid();
        const row = newSecret(environmentId, { id, name, description, sealed: seal(id, value) }, clock.now());
        await insertWithin(session, row);
        await rows.keepRevisions(session, [row]);
        return row;
      });
      announceChange("created", environmentId, name);
      return created;
    },

    /** Sets another value, as the next revision. */
    async put(environmentId: string, name: string, { value, description }: Omit<SecretInput, "name">) {
      requireStorable("description", description);
      requireValue(value);
      const updated = await write(environmentId, async (session, seal) => {
        const before = await hold(session, environmentId, name);
        const row: SealedRow = {
          ...before,
          revision: before.revision + 1,
          description: description ?? before.description,
          sealed: seal(before.id, value),
          updatedAt: clock.now(),
        };
        await rows.updateSecret(session, row);
        // The one before is of a version that kept none, or kept already.
        await rows.keepRevisions(session, [before, row]);
        return row;
      });
      announceChange("updated", environmentId, name);
      return updated;
    },

    /** Sets another name or description and keeps the value. */
    async patch(
      environmentId: string,
      name: string,
      { name: wanted, description }: { name?: string; description?: string },
    ) {
      requireStorable("description", description);
      if (wanted !== undefined) requireName(wanted);
      const row = await store
        .write(async (session) => {
          const before = await hold(session, environmentId, name);
          const after: SealedRow = {
            ...before,
            name: wanted ?? before.name,
            description: description ?? before.description,
            updatedAt: clock.now(),
          };
          await rows.updateSecret(session, after);
          return after;
        })
        .catch((error: unknown) => {
          throw error instanceof StoreError && error.trouble === "unique" ? taken(wanted ?? name) : error;
        });
      values.forget(environmentId);
      const { sealed: _, ...shown } = row;
      announceRenamed(environmentId, name, shown.name);
      return shown;
    },

    async remove(environmentId: string, name: string) {
      await store.write(async (session) => {
        await rows.dropRevisions(session, await hold(session, environmentId, name));
        await rows.deleteSecret(session, environmentId, name);
      });
      values.forget(environmentId);
      announceChange("deleted", environmentId, name);
    },

    /**
     * Values for assignments, of the names that exist; a cached second old. Throws when one of them cannot be
     * unsealed.
     */
    valuesOf: values.of,

    reseal,
  };
}

/** Seals all values again, in the transaction that rotates the master key. */
async function reseal(session: Session, again: (place: string, sealed: string) => string) {
  for (const { id, environmentId, sealed } of await rows.everySecret(session))
    await rows.resealSecret(session, {
      id,
      environmentId,
      sealed: again(sealScopeOf(environmentId, id), sealed),
    });
}

/** What is shown of secrets, which never are their values. */
const secretReads = ({ store, definitions }: Pick<SecretsDeps, "store" | "definitions">) => ({
  async list(environmentId: string): Promise<SecretRow[]> {
    return (await rows.secretsOf(store, environmentId)).map(({ sealed: _, ...shown }) => shown);
  },

  /** As it is, or what was known of it at an earlier value. */
  async get(environmentId: string, name: string, revision?: number): Promise<SecretRow> {
    const row = await rows.secretByName(store, environmentId, name);
    if (!row) throw missing("secret", name);
    const { sealed: _, ...shown } = row;
    if (revision === undefined || revision === row.revision) return shown;
    const past = await rows.secretAt(store, shown, revision);
    if (!past) throw new Fault("not_found", `revision ${revision} of secret ${name} not found`);
    return past;
  },

  /** Functions that declare it, by id. */
  async usersOf(environmentId: string, name: string): Promise<FunctionRecord[]> {
    if (!(await rows.secretByName(store, environmentId, name))) throw missing("secret", name);
    const { functions } = await definitions.current(environmentId);
    return [...functions.values()]
      .filter(({ definition }) => definition.secrets.includes(name))
      .sort((one, other) => (one.definition.id < other.definition.id ? -1 : 1));
  },
});

/** Every change begins with this lock: without it two changes at once would overwrite each other. */
async function hold(session: Session, environmentId: string, name: string): Promise<SealedRow> {
  const row = await rows.holdSecret(session, environmentId, name);
  if (!row) throw missing("secret", name);
  return row;
}

const newSecret = (
  environmentId: string,
  secret: { id: string; name: string; description: string | undefined; sealed: string },
  at: Instant,
): SealedRow => ({
  ...secret,
  environmentId,
  revision: 1,
  description: secret.description ?? null,
  createdAt: at,
  updatedAt: at,
});

/** Inserts a secret unless the environment is full or the name is taken. */
async function insertWithin(session: Session, row: SealedRow): Promise<void> {
  if ((await rows.secretsOf(session, row.environmentId)).length >= secretsMax)
    throw new Fault("resource_exhausted", `an environment holds at most ${secretsMax} secrets`);
  if ((await rows.insertSecret(session, row)) === 0) throw taken(row.name);
}

const taken = (name: string): Fault =>
  new Fault("already_exists", `a secret named "${name}" exists already`, { field: "name" });

function requireName(name: string): void {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]*$/.test(name) || name.length > secretNameCharsMax)
    throw invalid(
      "name",
      `must be 1 to ${secretNameCharsMax} characters of A-Z, a-z, 0-9, _, . and -, and not begin with . or -`,
    );
}

function requireValue(value: string): void {
  if (value === "") throw invalid("value", "must not be empty");
  if (Buffer.byteLength(value) > secretBytesMax)
    throw invalid("value", `must be at most ${secretBytesMax} bytes`);
  if (!value.isWellFormed() || value.includes("\0"))
    throw invalid("value", "must be well-formed text without NUL");
}
