import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { pageOffset, pageSize } from "../../../kit/page.ts";
import { webhookSourcesMax } from "./limits.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { configOf, emptyConfig, type PresetName, presetNames, presets, type VerifyConfig } from "./rules.ts";
import {
  configIn,
  type ExpectedTime,
  newToken,
  openChange,
  openSourceSecrets,
  placeOf,
  type ShownSource,
  secretsOf,
  type WebhookSourcesDeps,
} from "./source-changes.ts";

export type { SourceRow } from "./rows.ts";
export type { ShownSource } from "./source-changes.ts";

export interface SourceInput {
  name?: string | undefined;
  verifyHeader?: string | undefined;
  verifyAlgorithm?: string | undefined;
  metadata?: Record<string, unknown> | undefined;
  verifyConfig?: VerifyConfig | undefined;
  preset?: string | undefined;
}

/** An update of nothing but empty texts, which existing clients always send, says nothing. */
const isEmpty = (config: VerifyConfig | undefined): boolean =>
  config === undefined || Object.values(config).every((value) => value === "" || value === 0);

function presetIn(text: string | undefined): PresetName | undefined {
  if (text === undefined || text === "") return undefined;
  if (!rules.isPreset(text, presetNames)) throw invalid("preset", `must be one of ${presetNames.join(", ")}`);
  return text;
}

/** How a source verifies and names what comes; undefined when the input says nothing of it. */
function configFrom({ preset, verifyConfig, verifyHeader, verifyAlgorithm }: SourceInput) {
  const named = presetIn(preset);
  if (named !== undefined || !isEmpty(verifyConfig))
    return rules.requireConfig(configOf(named, verifyConfig ?? emptyConfig));
  if (!verifyHeader && verifyAlgorithm) throw invalid("verify_header", "must not be empty");
  if (!verifyHeader) return undefined;
  return rules.requireConfig({ ...emptyConfig, ...rules.legacyConfig(verifyHeader, verifyAlgorithm ?? "") });
}

/** Sources of inbound webhooks: what is registered, and how they verify. */
export function openSources(deps: WebhookSourcesDeps) {
  const { store, clock, ids, keyring, onChanged } = deps;
  const change = openChange(deps);

  const find = async (environmentId: string, id: string): Promise<rows.SourceRow> => {
    const row = await rows.getSource(store, environmentId, id);
    if (!row) throw missing("webhook source", id);
    return row;
  };

  return {
    find,

    async create(
      environmentId: string,
      { eventPrefix, secret, ...input }: SourceInput & { eventPrefix: string; secret?: string | undefined },
    ): Promise<ShownSource> {
      const event_prefix = rules.requirePrefix(eventPrefix);
      const config = configFrom(input);
      if (secret) rules.requireSecret(secret, config);
      const { token, ...stored } = newToken(ids);
      const key = { environment_id: environmentId, id: ids.next("whs") };
      const now = clock.now();
      const row: rows.SourceRow = {
        ...key,
        ...stored,
        name: rules.requireName(input.name ?? ""),
        event_prefix,
        source_type: presetIn(input.preset) ?? "generic",
        verify_header: input.verifyHeader ?? "",
        verify_algorithm: input.verifyAlgorithm ?? "",
        verify_config: config ? JSON.stringify(config) : null,
        metadata: rules.metadataText(input.metadata),
        ...{ sealed: null, prev_sealed: null, prev_expires_at: null, created_at: now, updated_at: now },
      };
      const made = await keyring.writeSealed(async (session) => {
        await deps.shareEnvironment(session, environmentId);
        if ((await rows.countSources(session, environmentId)) >= webhookSourcesMax)
          throw new Fault(
            "resource_exhausted",
            `an environment holds at most ${webhookSourcesMax} webhook sources`,
          );
        const sealed = secret ? keyring.seal(placeOf(key), secret) : null;
        await rows.insertSource(session, { ...row, sealed });
        return { result: { row: { ...row, sealed }, token }, sealed: sealed === null ? [] : [sealed] };
      });
      onChanged({ environmentId, id: key.id, change: "created" });
      return made;
    },

    async list(
      environmentId: string,
      page: { limit?: number | undefined; offset?: number | undefined },
    ): Promise<{ sources: rows.SourceRow[]; totalCount: number }> {
      const size = { limit: pageSize(page.limit), offset: pageOffset(page.offset) };
      const [sources, totalCount] = await Promise.all([
        rows.listSources(store, environmentId, size),
        rows.countSources(store, environmentId),
      ]);
      return { sources, totalCount };
    },

    /** Name and metadata are replaced; of what verifies, the given is. */
    update: (environmentId: string, id: string, input: SourceInput & { expected: ExpectedTime }) =>
      change({ environmentId, id, expected: input.expected }, async (before) => {
        const given = configFrom(input);
        const preset = presetIn(input.preset);
        const config = given ?? configIn(before);
        // A secret that the new rules cannot use would refuse every request from now on.
        if (given)
          for (const { secret } of await secretsOf(before, keyring)) rules.requireSecret(secret, config);
        // A form sends back what it shows: a source that verifies as before stays its provider's.
        const isOther = JSON.stringify(given) !== JSON.stringify({ ...emptyConfig, ...configIn(before) });
        const isOwn = preset === undefined && !isEmpty(input.verifyConfig) && isOther;
        return {
          ...before,
          name: rules.requireName(input.name ?? ""),
          metadata: rules.metadataText(input.metadata),
          source_type: preset ?? (isOwn && before.source_type in presets ? "generic" : before.source_type),
          verify_header: input.verifyHeader || before.verify_header,
          verify_algorithm: input.verifyAlgorithm || before.verify_algorithm,
          verify_config: config ? JSON.stringify(config) : null,
        };
      }),

    async delete(environmentId: string, id: string): Promise<void> {
      const gone = await store.write((session) => rows.deleteSource(session, environmentId, id));
      if (gone === 0) throw missing("webhook source", id);
      onChanged({ environmentId, id, change: "deleted" });
    },
    ...openSourceSecrets(deps),
  };
}

export type WebhookSources = ReturnType<typeof openSources>;
