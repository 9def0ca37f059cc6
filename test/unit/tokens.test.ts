import { expect, test } from "bun:test";
import { openTokens } from "../../src/domain/access/sessions/tokens.ts";

function tokens() {
  const secrets = new Map([["first", "s".repeat(64)]]);
  let now = 1_000_000;
  const all = openTokens({
    keyring: {
      current: () => ({ id: "first", secret: secrets.get("first")! }) as never,
      find: (_, id) => secrets.get(id),
    },
    now: () => now,
  });
  const sign = () =>
    all.sign({
      kind: "user",
      subjectId: "usr_1",
      orgId: "org_1",
      sid: "sid",
      createdAt: now,
      expiresAt: now + 60_000,
    });
  return { ...all, secrets, sign, pass: (ms: number) => (now += ms) };
}

const claims = { kind: "user", subject: "usr_1", sid: "sid", expiresAt: 1_060_000 };

test("a token that was read is refused once its secret is gone, or another has its name", async () => {
  const { read, sign, secrets } = tokens();
  const { token } = await sign();
  expect(await read(token)).toEqual(claims as never);
  expect(await read(token)).toEqual(claims as never);
  const secret = secrets.get("first")!;
  secrets.set("first", "o".repeat(64));
  expect(await read(token)).toBeUndefined();
  secrets.delete("first");
  expect(await read(token)).toBeUndefined();
  secrets.set("first", secret);
  expect(await read(token)).toEqual(claims as never);
});

test("a token that was read is refused when its time is over", async () => {
  const { read, sign, pass } = tokens();
  const { token } = await sign();
  expect(await read(token)).toEqual(claims as never);
  pass(60_000);
  expect(await read(token)).toBeUndefined();
});

test("a token that differs from one that was read is verified by itself", async () => {
  const { read, sign } = tokens();
  const { token } = await sign();
  expect(await read(token)).toEqual(claims as never);
  const [head, , signature] = token.split(".");
  const other = Buffer.from(JSON.stringify({ ...claims, sub: "usr_2" })).toString("base64url");
  expect(await read(`${head}.${other}.${signature}`)).toBeUndefined();
});
