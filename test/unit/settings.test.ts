import { describe, expect, test } from "bun:test";
import { expireEveryMs, keptMs } from "../../src/settings/retention.ts";
import {
  bootstrapKeyFileOf,
  type Config,
  isLoopback,
  parseSettings,
  settings,
  settingsText,
} from "../../src/settings/settings.ts";

function config(argv: string[], environment: Record<string, string> = {}): Config {
  const parsed = parseSettings(argv, environment);
  if (!parsed.ok) throw new Error(parsed.errors.join("\n"));
  return parsed.config;
}

function errors(argv: string[], environment: Record<string, string> = {}): string[] {
  const parsed = parseSettings(argv, environment);
  return parsed.ok ? [] : parsed.errors;
}

describe("values", () => {
  test("nothing given is a server on loopback with a file", () => {
    const { port, host, db, databaseUrl, dev } = config([]);
    expect({ port, host, db, databaseUrl, dev }).toEqual({
      port: 9123,
      host: "127.0.0.1",
      db: ".svc/svc.db",
      databaseUrl: undefined,
      dev: false,
    });
  });

  test("a flag beats a variable, a variable beats the default, an empty variable is not set", () => {
    const environment = { SVC_PORT: "8000", SVC_HOST: "", SVC_LEASE_MS: "2000" };
    expect(config([], environment)).toMatchObject({ port: 8000, host: "127.0.0.1", leaseMs: 2000 });
    expect(config(["--port", "8001"], environment).port).toBe(8001);
    expect(config(["--port=8002"], environment).port).toBe(8002);
  });

  test("a switch needs no value and takes one", () => {
    expect(config(["--dev"]).dev).toBe(true);
    expect(config(["--dev", "--port", "1"])).toMatchObject({ dev: true, port: 1 });
    expect(config(["--dev=false"], { SVC_DEV: "1" }).dev).toBe(false);
  });

  test("--db beats SVC_DATABASE_URL; both flags are one too many", () => {
    const url = "postgres://db.example/svc";
    expect(config(["--db", "x.db"], { SVC_DATABASE_URL: url }).databaseUrl).toBeUndefined();
    expect(config([], { SVC_DB: "x.db", SVC_DATABASE_URL: url }).databaseUrl).toBe(url);
    expect(errors(["--db", "x.db", "--database-url", url])).toEqual(["--db and --database-url: choose one"]);
  });

  test("variables of clients and of tests are left alone", () => {
    const environment = {
      SVC_SERVER_URL: "x",
      SVC_URL: "x",
      SVC_API_KEY: "x",
      SVC_ENV: "x",
      SVC_LOG_LEVEL: "x",
      SVC_TEST_POSTGRES_URL: "x",
      PATH: "/bin",
    };
    expect(errors([], environment)).toEqual([]);
  });
});

test.each([
  ["0", 0],
  ["1", 1],
  ["1.0", 1],
  ["0.25", 0.25],
  [".5", 0.5],
])("a share of %p is %p", (text, share) => {
  expect(config([], { SVC_OTEL_SAMPLE_RATE: text }).otelSampleRate).toBe(share);
});

describe("refusals", () => {
  test("an unknown flag or variable is named, with the nearest known one", () => {
    expect(errors(["--prot", "80"])).toEqual(["--prot: unknown flag, did you mean --port?"]);
    expect(errors(["--colour=blue"])).toEqual(["--colour: unknown flag"]);
    expect(errors([], { SVC_LEASE_MSEC: "5" })).toEqual([
      "SVC_LEASE_MSEC: unknown variable, did you mean SVC_LEASE_MS?",
    ]);
    expect(errors([], { SVC_SOMETHING_ELSE_ENTIRELY: "5" })).toEqual([
      "SVC_SOMETHING_ELSE_ENTIRELY: unknown variable",
    ]);
  });

  test.each([
    [["--port", "65536"], {}, '--port: must be a whole number from 0 to 65535, not "65536"'],
    [["--port", "1e3"], {}, '--port: must be a whole number from 0 to 65535, not "1e3"'],
    [["--port"], {}, "--port: needs a value, a whole number from 0 to 65535"],
    [["--port", "--dev"], {}, "--port: needs a value, a whole number from 0 to 65535"],
    [
      [],
      { SVC_LEASE_MS: "10" },
      'SVC_LEASE_MS: must be a whole number of milliseconds from 1000 to 3600000, not "10"',
    ],
    [[], { SVC_DEV: "yes" }, 'SVC_DEV: must be true or false, not "yes"'],
    [[], { LOG_FORMAT: "xml" }, 'LOG_FORMAT: must be one of json, text, not "xml"'],
    [["--node-id", "a b"], {}, '--node-id: must be 1 to 63 of A-Z a-z 0-9 _ -, not "a b"'],
    ...["1.5", "-0.1", "1e-1", "half", "."].map(
      (rate) =>
        [
          [],
          { SVC_OTEL_SAMPLE_RATE: rate },
          `SVC_OTEL_SAMPLE_RATE: must be a number from 0 to 1, not "${rate}"`,
        ] as [string[], object, string],
    ),
    ...["collector:4317", "http://a,http://b", "http://["].map(
      (endpoint) =>
        [
          [],
          { SVC_OTEL_ENDPOINT: endpoint },
          `SVC_OTEL_ENDPOINT: must be a URL that starts with http:// or https://, not "${endpoint}"`,
        ] as [string[], object, string],
    ),
    [["serve-me"], {}, "argument 1 belongs to no flag"],
  ])("%p %p", (argv, environment, error) => {
    expect(errors(argv, environment as Record<string, string>)).toEqual([error]);
  });

  test("a certificate wants its key, and two ports are two", () => {
    expect(errors([], { SVC_TLS_CERT_FILE: "a.pem", NATS_TLS_KEY_FILE: "b.pem" })).toEqual([
      "SVC_TLS_CERT_FILE and SVC_TLS_KEY_FILE: set both or neither",
      "NATS_TLS_CERT_FILE and NATS_TLS_KEY_FILE: set both or neither",
    ]);
    expect(errors(["--port", "9190", "--grpc-port", "9190"])).toEqual([
      "--port and --grpc-port: must differ",
    ]);
    expect(errors(["--port", "9190", "--grpc-port", "0"])).toEqual([]);
    expect(errors(["--port", "0", "--grpc-port", "0"])).toEqual([]);
  });

  test("every error is told at once", () => {
    expect(errors(["--prot", "1", "--port", "x"], { SVC_DVE: "1" })).toHaveLength(3);
  });

  test.each(["127.0.0.1", "127.8.0.1", "localhost", "::1"])("--dev on %s", (host) => {
    expect(isLoopback(host)).toBe(true);
    expect(errors(["--dev", "--host", host])).toEqual([]);
  });

  test.each(["0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example", "svc.example"])("no --dev on %s", (host) => {
    expect(errors(["--dev", "--host", host])).toEqual([
      `--dev: opens the server to anyone who reaches it, so --host must be a loopback address, not ${host}`,
    ]);
  });

  test("a time has a unit, and one fact one setting", () => {
    expect(keptMs(config([], { SVC_RUN_RETENTION: "4m", SVC_TOPIC_RETENTION: "0" }))).toEqual({
      events: 0,
      topics: 0,
      runs: 240_000,
    });
    expect(keptMs(config([], { SVC_EVENT_RETENTION_DAYS: "2" }))).toEqual({
      events: 2 * 86_400_000,
      topics: 72 * 3_600_000,
      runs: 90 * 86_400_000,
    });
    expect(expireEveryMs(240_000)).toBe(60_000);
    for (const wrong of ["4", "9s", "4 m", "36501d", "-1m", "1.5h"])
      expect(errors([], { SVC_RUN_RETENTION: wrong })).toEqual([
        `SVC_RUN_RETENTION: must be a whole number with s, m, h or d, from 10s to 36500d, or 0 for never, not "${wrong}"`,
      ]);
    expect(errors([], { SVC_RUN_RETENTION: "4m", SVC_RUN_RETENTION_DAYS: "1" })).toEqual([
      "SVC_RUN_RETENTION and SVC_RUN_RETENTION_DAYS: choose one",
    ]);
  });

  test("a secret is never shown", () => {
    const told = [
      ...errors([], {
        SVC_BOOTSTRAP_ADMIN_KEY: "hush",
        SVC_BOOTSTRAP_ADMIN_PASSWORD: "hush",
        SVC_DATABASE_URL: "mysql://root:hush@db",
        NATS_URL: "hush",
      }),
      ...errors(["--database-url=hush", "--data-url=hush", "hush"]),
    ];
    expect(told).toHaveLength(7);
    expect(told.join("\n")).not.toContain("hush");
  });
});

test("the key file stands beside the database file, or in the temporary folder", () => {
  expect(bootstrapKeyFileOf(config(["--db", "/data/x.db"]))).toBe("/data/.ssvc_bootstrap_key.json");
  expect(bootstrapKeyFileOf(config(["--database-url", "postgres://db/svc"]))).toMatch(
    /\/\.svc_bootstrap_key\.json$/,
  );
  expect(bootstrapKeyFileOf(config(["--bootstrap-key-file", "/run/key"]))).toBe("/run/key");
});

test("help names every flag and every variable", () => {
  for (const { flag, env } of Object.values(settings) as { flag?: string; env?: string }[]) {
    if (flag) expect(settingsText()).toContain(flag);
    if (env) expect(settingsText()).toContain(env);
  }
});
