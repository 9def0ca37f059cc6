import type { Clock } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import { bodyOf, nameIn, type WebhookContent } from "./content.ts";
import { configOf, emptyConfig, requireConfig, requireSecret, type VerifyConfig } from "./rules.ts";
import { configIn, secretsOf } from "./source-changes.ts";
import type { WebhookSources } from "./sources.ts";
import { dedupIdOf, type NamedSecret, verify } from "./verify.ts";

/** What the ingest would make of a sample. */
export interface Trial {
  verified: boolean;
  signingString: string;
  /** Empty where it would reveal what a stored secret signs. */
  computedSignature: string;
  presentedSignatures: string[];
  timestamp: string;
  eventName: string;
  dedupId: string;
  error: string;
}

export interface TrialInput {
  sourceId: string;
  secret: string;
  config: VerifyConfig | undefined;
  body: string;
  headers: Record<string, string>;
}

const lowered = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

/** Runs the code of the ingest on a sample, and stores nothing. */
export const openTrial =
  ({
    clock,
    keyring,
    sources,
  }: {
    clock: Clock;
    keyring: Pick<Keyring, "unseal">;
    sources: WebhookSources;
  }) =>
  async (environmentId: string, input: TrialInput): Promise<Trial> => {
    const { sourceId, secret, body } = input;
    const row = sourceId === "" ? undefined : await sources.find(environmentId, sourceId);
    const given = input.config && Object.values(input.config).some((value) => value !== "" && value !== 0);
    const config = given
      ? requireConfig(configOf(undefined, input.config ?? emptyConfig))
      : row && configIn(row);
    if (!config) throw invalid("verify_config", "is required where source_id names no source that has one");
    const secrets: NamedSecret[] =
      secret !== ""
        ? [{ key: "current", secret: requireSecret(secret, config) }]
        : row
          ? (await secretsOf(row, keyring)).filter(({ until }) => until > clock.now())
          : [];
    if (secrets.length === 0)
      throw invalid("verify_secret", "is required where source_id names no source that has one");
    const content: WebhookContent = {
      bytes: new TextEncoder().encode(body),
      headers: lowered(input.headers),
      query: "",
    };
    const verdict = verify(config, secrets, content, clock.now());
    const data = bodyOf(content).readable;
    // Who may test a source must not learn what its provider would sign: they could pass for it elsewhere.
    const isShown = secret !== "" || verdict.verified;
    const prefix = row ?? { event_prefix: "" };
    const named = nameOf({ prefix: prefix.event_prefix, config }, content, data);
    return {
      verified: verdict.verified,
      signingString: new TextDecoder().decode(verdict.signed),
      computedSignature: isShown ? verdict.computedSignature : "",
      presentedSignatures: verdict.presentedSignatures,
      timestamp: verdict.timestamp,
      eventName: named.name,
      dedupId: dedupIdOf(config, content, data) ?? "",
      error: verdict.error || named.error,
    };
  };

function nameOf(
  { prefix, config }: { prefix: string; config: VerifyConfig },
  content: WebhookContent,
  data: unknown,
): { name: string; error: string } {
  try {
    const name = nameIn({ event_prefix: prefix || "prefix", config }, content, data);
    return { name: prefix === "" ? name.slice("prefix.".length) : name, error: "" };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return { name: "", error: error.message };
  }
}
