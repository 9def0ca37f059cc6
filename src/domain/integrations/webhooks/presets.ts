/** How requests of a provider are verified and named. Empty texts and zeros say nothing. */
export interface VerifyConfig {
  signatureHeader: string;
  entrySeparator: string;
  kvDelimiter: string;
  signatureKey: string;
  /** A header; or `body:a.b`, which the signature covers with the body. */
  timestampHeader: string;
  timestampKey: string;
  signingTemplate: string;
  encoding: string;
  algorithm: string;
  toleranceSeconds: number;
  eventNamePath: string;
  dedupIdPath: string;
  url: string;
  secretEncoding: string;
}

export const emptyConfig: VerifyConfig = {
  signatureHeader: "",
  entrySeparator: "",
  kvDelimiter: "",
  signatureKey: "",
  timestampHeader: "",
  timestampKey: "",
  signingTemplate: "",
  encoding: "",
  algorithm: "",
  toleranceSeconds: 0,
  eventNamePath: "",
  dedupIdPath: "",
  url: "",
  secretEncoding: "",
};

const hex256 = { encoding: "hex", algorithm: "hmac-sha256", signingTemplate: "{body}" };

/** What providers document; `presets.test` holds each to an example of its own documentation. */
export const presets = {
  stripe: {
    ...hex256,
    ...{ signatureHeader: "stripe-signature", entrySeparator: ",", kvDelimiter: "=", signatureKey: "v1" },
    ...{ timestampKey: "t", signingTemplate: "{ts}.{body}", toleranceSeconds: 300 },
    ...{ eventNamePath: "body:type", dedupIdPath: "body:id" },
  },
  github: {
    ...hex256,
    ...{ signatureHeader: "x-hub-signature-256", kvDelimiter: "=", signatureKey: "sha256" },
    ...{ eventNamePath: "header:x-github-event", dedupIdPath: "header:x-github-delivery" },
  },
  slack: {
    ...hex256,
    ...{ signatureHeader: "x-slack-signature", kvDelimiter: "=", signatureKey: "v0" },
    ...{ timestampHeader: "x-slack-request-timestamp", signingTemplate: "v0:{ts}:{body}" },
    ...{ toleranceSeconds: 300, dedupIdPath: "body:event_id" },
  },
  shopify: {
    ...{ ...hex256, encoding: "base64", signatureHeader: "x-shopify-hmac-sha256" },
    ...{ eventNamePath: "header:x-shopify-topic", dedupIdPath: "header:x-shopify-webhook-id" },
  },
  "standard-webhooks": {
    ...{ ...hex256, encoding: "base64", secretEncoding: "base64", signatureHeader: "webhook-signature" },
    ...{ entrySeparator: " ", kvDelimiter: ",", signatureKey: "v1", timestampHeader: "webhook-timestamp" },
    ...{ signingTemplate: "{id}.{ts}.{body}", toleranceSeconds: 300, dedupIdPath: "header:webhook-id" },
  },
  twilio: {
    ...{ encoding: "base64", algorithm: "hmac-sha1", signatureHeader: "x-twilio-signature" },
    ...{ signingTemplate: "{url}{form}", dedupIdPath: "header:i-twilio-idempotency-token" },
  },
  linear: {
    ...{ ...hex256, signatureHeader: "linear-signature", timestampHeader: "body:webhookTimestamp" },
    ...{ toleranceSeconds: 60, eventNamePath: "body:type", dedupIdPath: "header:linear-delivery" },
  },
  "generic-hmac": { ...hex256, signatureHeader: "x-signature" },
} as const satisfies Record<string, Partial<VerifyConfig>>;

export type PresetName = keyof typeof presets;
export const presetNames = Object.keys(presets) as PresetName[];

/** The preset with what the caller gave in place of its own. */
export function configOf(preset: PresetName | undefined, given: VerifyConfig): VerifyConfig {
  const base: VerifyConfig = preset === undefined ? emptyConfig : { ...emptyConfig, ...presets[preset] };
  const stated = Object.entries(given).filter(([, value]) => value !== "" && value !== 0);
  return { ...base, ...Object.fromEntries(stated) };
}
