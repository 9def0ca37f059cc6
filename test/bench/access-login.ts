/**
 * `bun run bench:access login [pairs]`: how long the refusal of a wrong password takes for an account that is there and for
 * one that is not, in pairs whose order turns about (known, unknown, unknown, known), beside the hash itself.
 */
import { hashPassword, verifyPassword } from "../../src/kit/password.ts";
import { startTestServer } from "../support/server.ts";
import { median } from "./figures.ts";

export async function benchLogin(pairs: number): Promise<void> {
  const server = await startTestServer({ engine: "libsql", settings: { trustProxy: true } });
  const account = { email: "known@example.test", password: "correct horse battery" };
  await server.api("/api/v1/users", { body: { ...account, roles: ["viewer"] } });
  const hash = await hashPassword(account.password);
  let attempts = 0;
  const timed = async (work: () => Promise<unknown>) => {
    const begun = performance.now();
    await work();
    return performance.now() - begun;
  };
  /** Each from an address of its own: what is throttled computes nothing. */
  const guess = (email: string) =>
    timed(async () => {
      const from = `198.18.${attempts >> 8}.${attempts++ & 255}`;
      const { status } = await server.api("/api/v1/auth/login", {
        key: null,
        body: { email, password: `wrong guess ${attempts}` },
        headers: { "x-forwarded-for": from },
      });
      if (status !== 401) throw new Error(`a guess was answered ${status}`);
    });
  const known = () => guess(account.email);
  const unknown = () => guess(`nobody-${attempts}@example.test`);
  for (let warm = 0; warm < 10; warm++) await (warm % 2 === 0 ? known() : unknown());
  const [ofKnown, ofUnknown, ofHash]: [number[], number[], number[]] = [[], [], []];
  for (let pair = 0; pair < pairs; pair++) {
    if (pair % 2 === 0) {
      ofKnown.push(await known());
      ofUnknown.push(await unknown());
    } else {
      ofUnknown.push(await unknown());
      ofKnown.push(await known());
    }
    if (pair % 10 === 0) ofHash.push(await timed(() => verifyPassword("wrong", hash, "")));
  }
  const hashMs = median(ofHash);
  const medianOf = (values: readonly number[]) => Math.round(median(values) * 1_000) / 1_000;
  const paired = median(ofKnown.map((ms, at) => ms - ofUnknown[at]!));
  console.log(
    JSON.stringify(
      {
        pairs,
        hashMs: Math.round(hashMs * 1_000) / 1_000,
        knownMs: medianOf(ofKnown),
        unknownMs: medianOf(ofUnknown),
        mediansDifferByShareOfHash:
          Math.round(((median(ofKnown) - median(ofUnknown)) * 10_000) / hashMs) / 10_000,
        pairsDifferByShareOfHash: Math.round((paired * 10_000) / hashMs) / 10_000,
        mostAllowed: 0.02,
      },
      null,
      2,
    ),
  );
  await server.stop();
}
