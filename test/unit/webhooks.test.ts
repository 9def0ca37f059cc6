import { describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { dataOf, textAt, type WebhookContent } from "../../src/domain/integrations/webhooks/content.ts";
import {
  configOf,
  emptyConfig,
  eventNameOf,
  keptBody,
  keptHeaders,
  type PresetName,
  presetNames,
  requireConfig,
  type VerifyConfig,
} from "../../src/domain/integrations/webhooks/rules.ts";
import { verify } from "../../src/domain/integrations/webhooks/verify.ts";

interface Example {
  secret: string;
  body: string;
  headers: Record<string, string>;
  /** Seconds. */
  at: number;
  given?: Partial<VerifyConfig>;
  query?: string;
}

const hmac = (hash: string, key: string, text: string, encoding: "hex" | "base64") =>
  createHmac(hash, key).update(text).digest(encoding);

const form = { "content-type": "application/x-www-form-urlencoded" };

/** As the providers' own documentation prints them; by its recipe where it prints none. */
const examples: Record<PresetName, Example> = {
  github: {
    secret: "It's a Secret to Everybody",
    body: "Hello, World!",
    headers: {
      "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    },
    at: 1_700_000_000,
  },
  slack: {
    secret: "8f742231b10e8888abcd99yyyzzz85a5",
    body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    headers: {
      ...form,
      "x-slack-request-timestamp": "1531420618",
      "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    },
    at: 1_531_420_618,
  },
  "standard-webhooks": {
    secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    body: '{"test": 2432232314}',
    headers: {
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,bm90IHRoaXMgb25l v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
    at: 1_614_265_330,
  },
  twilio: {
    secret: "12345",
    body: "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212",
    headers: { ...form, "x-twilio-signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8=" },
    at: 1_700_000_000,
    given: { url: "https://mycompany.com/myapp.php" },
    query: "foo=1&bar=2",
  },
  stripe: {
    secret: "whsec_test_secret",
    body: '{"id":"evt_1","type":"charge.succeeded"}',
    headers: {
      "stripe-signature": `t=1492774577,v1=${"0".repeat(64)},v1=${hmac("sha256", "whsec_test_secret", '1492774577.{"id":"evt_1","type":"charge.succeeded"}', "hex")},v0=6ffb`,
    },
    at: 1_492_774_577,
  },
  shopify: {
    secret: "hush",
    body: '{"id":820982911946154508}',
    headers: {
      "x-shopify-hmac-sha256": hmac("sha256", "hush", '{"id":820982911946154508}', "base64"),
    },
    at: 1_700_000_000,
  },
  linear: {
    secret: "lin_wh_1",
    body: '{"type":"Issue","webhookTimestamp":1676056940508}',
    headers: {
      "linear-signature": hmac(
        "sha256",
        "lin_wh_1",
        '{"type":"Issue","webhookTimestamp":1676056940508}',
        "hex",
      ),
    },
    at: 1_676_056_940,
  },
  "generic-hmac": {
    secret: "key",
    body: "The quick brown fox jumps over the lazy dog",
    headers: {
      ...{ "content-type": "text/plain" },
      "x-signature": "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
    },
    at: 1_700_000_000,
  },
};

const judge = (preset: PresetName, change: Partial<Example> = {}) => {
  const { secret, body, headers, at, given, query = "" } = { ...examples[preset], ...change };
  const config = requireConfig(configOf(preset, { ...emptyConfig, ...given }));
  const content: WebhookContent = { bytes: new TextEncoder().encode(body), headers, query };
  return verify(config, [{ key: "current", secret }], content, at * 1_000);
};

describe("presets", () => {
  test.each(presetNames)("%s verifies the provider's example", (preset) => {
    expect(judge(preset)).toMatchObject({ verified: true, signatureKey: "current", error: "" });
  });

  test.each(presetNames)("%s refuses another body, another secret and no signature", (preset) => {
    const { body, secret, headers } = examples[preset];
    expect(judge(preset, { body: `${body}1` }).error).toMatch(/no signature fits/);
    expect(judge(preset, { secret: `${secret.slice(0, -1)}A` }).error).toBe("no signature fits");
    const names = Object.keys(headers).filter((name) => !/signature|hmac/.test(name));
    const unsigned = Object.fromEntries(names.map((name) => [name, headers[name]!]));
    expect(judge(preset, { headers: unsigned }).error).toMatch(/is missing/);
  });

  test("what carries its time is refused outside of the tolerance, to the second", () => {
    for (const preset of ["slack", "stripe", "standard-webhooks"] as const) {
      const { at } = examples[preset];
      for (const off of [-300, 300]) expect(judge(preset, { at: at + off }).error).toBe("");
      for (const off of [-301, 301]) expect(judge(preset, { at: at + off }).error).toContain("300 seconds");
    }
    expect(judge("linear", { at: examples.linear.at + 62 }).error).toContain("60 seconds");
    const { headers } = examples.slack;
    const undated = { ...headers, "x-slack-request-timestamp": "soon" };
    expect(judge("slack", { headers: undated }).verified).toBe(false);
  });

  test("a URL that is signed covers a body only by its hash in the query", () => {
    const given = { url: "https://mycompany.com/hook" };
    const signed = (query: string) => hmac("sha1", "12345", `https://mycompany.com/hook?${query}`, "base64");
    const body = '{"a":1}';
    const hash = new Bun.CryptoHasher("sha256").update(body).digest("hex");
    const ask = (query: string) =>
      judge("twilio", { given, query, body, headers: { "x-twilio-signature": signed(query) } }).error;
    expect(ask(`bodySHA256=${hash}`)).toBe("");
    expect(ask(`bodySHA256=${hash.replace(/./, "x")}`)).toBe("the signature does not cover the body");
    expect(ask("a=1")).toBe("the signature does not cover the body");
  });

  test("a secret that is no base64 lets nobody in, least of all with an empty key", () => {
    const { body } = examples["standard-webhooks"];
    const headers = {
      ...examples["standard-webhooks"].headers,
      "webhook-signature": `v1,${hmac("sha256", "", `msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.${body}`, "base64")}`,
    };
    expect(judge("standard-webhooks", { secret: "whsec_", headers }).verified).toBe(false);
  });
});

describe("configurations", () => {
  const field = (given: Partial<VerifyConfig>) => {
    try {
      requireConfig({ ...emptyConfig, signatureHeader: "x-s", ...given });
      return "fine";
    } catch (error) {
      return (error as Error).message;
    }
  };
  test.each([
    [{ signatureHeader: "a b" }, "verify_config.signature_header: must be the name of a header"],
    [{ signingTemplate: "{ts}." }, "verify_config.signing_template: must hold {body}"],
    [{ signingTemplate: "{body}{what}" }, "verify_config.signing_template: may hold"],
    [{ signingTemplate: "{body}{body}" }, "verify_config.signing_template: must hold each placeholder once"],
    [{ signingTemplate: "{ts}.{body}" }, "verify_config.timestamp_header: must say where {ts} stands"],
    [{ signingTemplate: "{url}{form}" }, "verify_config.url: must be the URL"],
    [{ encoding: "base32" }, "verify_config.encoding: must be one of hex, base64"],
    [{ algorithm: "md5" }, "verify_config.algorithm: must be one of"],
    [{ toleranceSeconds: -1 }, "verify_config.tolerance_seconds: must be from 0"],
    [{ eventNamePath: "type" }, "verify_config.event_name_path: must be header:X-Name or body:a.b"],
    [{ dedupIdPath: "body:a..b" }, "verify_config.dedup_id_path: must be"],
    [{ timestampHeader: "body:at" }, "fine"],
  ])("%j: %s", (given, message) => {
    expect(field(given)).toStartWith(message);
  });
});

test("bodies become data by their type", () => {
  const data = (type: string, text: string) =>
    dataOf({ bytes: new TextEncoder().encode(text), headers: { "content-type": type }, query: "" });
  expect(data("application/json", '{"a":[1]}')).toEqual({ a: [1] });
  expect(data("application/vnd.x+json; charset=utf-8", "1")).toBe(1);
  expect(data("application/x-www-form-urlencoded", "a=1&b=2&a=3&__proto__=x")).toEqual({
    form: JSON.parse('{"a":["1","3"],"b":"2","__proto__":"x"}'),
  });
  expect(data("text/plain; charset=utf-8", "hello")).toEqual({ text: "hello" });
  const fields = (count: number) => data("application/x-www-form-urlencoded", "a&".repeat(count));
  expect((fields(9_999) as { form: { a: string[] } }).form.a).toHaveLength(9_999);
  expect(() => fields(2_000_000)).toThrow("body: at most 10000 form fields");
  expect(() => data("application/xml", "<a/>")).toThrow("malformed JSON");
  expect(() => data("application/json", "")).toThrow("body: must not be empty");
});

test("what every object has is no header that came", () => {
  const content = { bytes: new TextEncoder().encode("{}"), headers: {}, query: "" };
  for (const name of ["constructor", "__proto__", "toString"]) {
    expect(textAt(`header:${name}`, { headers: {}, data: {} })).toBeUndefined();
    const config = requireConfig({ ...emptyConfig, signatureHeader: name });
    expect(verify(config, [{ key: "current", secret: "s" }], content, 0).error).toBe(
      `the header ${name} is missing`,
    );
  }
});

test("an id beyond what numbers hold is none", () => {
  const at = (data: unknown) => textAt("body:id", { headers: {}, data });
  expect([at({ id: 7 }), at({ id: 1.5 }), at({ id: "a" }), at({ id: true })]).toEqual([
    "7",
    "1.5",
    "a",
    "true",
  ]);
  expect([at({ id: 2 ** 53 }), at({ id: null }), at({ id: {} }), at([])]).toEqual([
    ...Array.from({ length: 4 }, () => undefined),
  ]);
});

test("names, headers and bodies stay within what is stored", () => {
  expect(eventNameOf("shop", "orders/create")).toBe("shop.orders/create");
  expect(() => eventNameOf("shop", "a b")).toThrow("event name: must not contain whitespace");
  expect(() => eventNameOf("shop", "x".repeat(300))).toThrow("event name: at most");
  expect(
    keptHeaders({
      authorization: "Bearer a",
      cookie: "b",
      "x-gitlab-token": "c",
      "x-a": `${"1".repeat(2_000)}`,
    }),
  ).toEqual({
    "x-a": "1".repeat(1_024),
  });
  expect(keptBody(new Uint8Array([65, 0, 255]), 10)).toEqual({ text: "A\ufffd\ufffd", isWhole: false });
  expect(keptBody(new TextEncoder().encode("añb"), 10)).toEqual({ text: "añb", isWhole: true });
});
