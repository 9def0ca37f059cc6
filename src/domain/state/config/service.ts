import type { Instant } from "../../../kit/clock.ts";
import type { Expected } from "../../../kit/expected.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { requirePayload } from "../../../kit/payload-json.ts";
import type { Kv, OwnBucket, ToldChange } from "../kv/service.ts";
import { configBytesMax, configNameCharsMax, configsMax } from "./limits.ts";

const named = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/;

/** A name stands in a topic, `system.config.{name}.updated`, and so may have dots as a topic may. */
function requireConfigName(name: string): void {
  if (name.length > configNameCharsMax || !named.test(name))
    throw invalid(
      "name",
      `must be 1 to ${configNameCharsMax} characters of A-Z, a-z, 0-9, _, - and single dots`,
    );
}

/** The fields of the second over those of the first; fields inside them are not merged. */
const merged = (
  before: Record<string, unknown>,
  fields: Record<string, unknown>,
): Record<string, unknown> => ({ ...before, ...fields });

type Document = Record<string, unknown>;

/** A document, or without `data` what is left of a deleted one. */
export interface ConfigState {
  name: string;
  data: Document | null;
  revision: number;
  updatedAt: Instant;
}

export interface ConfigRevision {
  revision: number;
  operation: "put" | "delete";
  bytes: number;
  updatedAt: Instant;
}

export type Configs = ReturnType<typeof openConfigs>;

export interface ConfigDeps {
  kv: Pick<Kv, "own">;
  /** Called after the commit; a hint that may be lost. */
  announce: (environmentId: string, state: ConfigState) => void;
}

const read = (value: string): Document => JSON.parse(Buffer.from(value, "base64").toString());

/** As a frame has it, one level deep. */
const requireCarried = (data: Document) => requirePayload("", { data });

function written(data: Document) {
  const bytes = Buffer.from(JSON.stringify(data));
  if (bytes.byteLength > configBytesMax) throw invalid("body", `at most ${configBytesMax} bytes of JSON`);
  return { value: bytes.toString("base64"), bytes: bytes.byteLength };
}

/** What a change says of its document. */
export const stateOf = ({ key, revision, createdAt, value }: Omit<ToldChange, "operation">): ConfigState => ({
  name: key,
  data: value === "" ? null : read(value),
  revision,
  updatedAt: createdAt,
});

/** Documents are keys of one hidden bucket of each environment. */
export function openConfigs({ kv, announce }: ConfigDeps) {
  const documents = kv.own({ name: "SYS_config_documents", called: "config", valueBytesMax: configBytesMax });

  async function change(
    environmentId: string,
    name: string,
    wanted: Parameters<OwnBucket["change"]>[2],
  ): Promise<ConfigState | undefined> {
    const changed = await documents.change(environmentId, name, wanted);
    if (!changed) return undefined;
    const state = stateOf({ ...changed, value: changed.value ?? "" });
    announce(environmentId, state);
    return state;
  }

  async function requireRoom(environmentId: string, name: string): Promise<void> {
    const all = await documents.list(environmentId);
    if (all.length >= configsMax && !all.some(({ key }) => key === name))
      throw new Fault("resource_exhausted", `an environment holds at most ${configsMax} documents`);
  }

  async function found(environmentId: string, name: string, revision?: number): Promise<ConfigState> {
    const stored = await documents.get(environmentId, name, revision);
    if (!stored && revision !== undefined)
      throw new Fault("not_found", `revision ${revision} of config ${name} not found`);
    if (!stored) throw missing("config", name);
    return stateOf({
      key: name,
      revision: stored.revision,
      createdAt: stored.created_at,
      value: stored.value,
    });
  }

  return {
    /** By name. */
    async list(environmentId: string): Promise<Pick<ConfigState, "name" | "revision" | "updatedAt">[]> {
      const all = await documents.list(environmentId);
      return all
        .map(({ key, revision, created_at }) => ({ name: key, revision, updatedAt: created_at }))
        .sort((one, other) => (one.name < other.name ? -1 : 1));
    },

    get: found,

    /** Newest first. */
    async history(environmentId: string, name: string): Promise<ConfigRevision[]> {
      const kept = await documents.history(environmentId, name);
      if (kept.length === 0) throw missing("config", name);
      return kept
        .map(({ created_at: updatedAt, revision, operation, bytes }) => ({
          revision,
          operation,
          bytes,
          updatedAt,
        }))
        .reverse();
    },

    async put(environmentId: string, name: string, data: Document, expected: Expected): Promise<ConfigState> {
      requireConfigName(name);
      requireCarried(data);
      const text = written(data);
      await requireRoom(environmentId, name);
      return (await change(environmentId, name, { expected, from: () => text }))!;
    },

    /** Puts these fields over those of the document. */
    async patch(
      environmentId: string,
      name: string,
      fields: Document,
      expected: Expected,
    ): Promise<ConfigState> {
      requireCarried(fields);
      const from = (current: string | undefined) => {
        if (current === undefined) throw missing("config", name);
        return written(merged(read(current), fields));
      };
      return (await change(environmentId, name, { expected, from }))!;
    },

    /** Puts the document of a revision that is kept. */
    async rollback(environmentId: string, name: string, revision: number): Promise<ConfigState> {
      const { data } = await found(environmentId, name, revision);
      const text = written(data ?? {});
      // Behind a deletion it is a document more.
      await requireRoom(environmentId, name);
      return (await change(environmentId, name, { expected: undefined, from: () => text }))!;
    },

    /** A document that does not exist is deleted already. */
    async remove(environmentId: string, name: string, expected: Expected) {
      await change(environmentId, name, { expected });
    },

    /** The document as it is, and then each change. */
    watch(
      environmentId: string,
      name: string,
      ask: { signal: AbortSignal; admitted: () => void },
    ): AsyncGenerator<ToldChange> {
      requireConfigName(name);
      return documents.watch(environmentId, name, ask);
    },
  };
}
