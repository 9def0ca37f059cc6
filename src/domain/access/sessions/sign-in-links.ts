import { hash, timingSafeEqual } from "node:crypto";
import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";

/** How long a sign-in link of the first start works. */
export const signInLinkMs = 10 * 60_000;
const tokenBytes = 32;

/** Sign-in links of this process: each signs one user in once. */
export type SignInLinks = ReturnType<typeof openSignInLinks>;

const digest = (token: string): Buffer => hash("sha256", token, "buffer");

export function openSignInLinks({ clock, ids }: { clock: Pick<Clock, "now">; ids: Pick<Ids, "secret"> }) {
  let link: { digest: Buffer; userId: string; until: Instant } | undefined;
  return {
    /** The token of a new link, which is kept as its hash only. */
    issue(userId: string): string {
      const token = ids.secret(tokenBytes);
      link = { digest: digest(token), userId, until: clock.now() + signInLinkMs };
      return token;
    },
    /** The user, once; undefined for a token that is unknown, used or too old. */
    take(token: string): string | undefined {
      const found = link;
      if (!found || !timingSafeEqual(found.digest, digest(token))) return undefined;
      link = undefined;
      return clock.now() < found.until ? found.userId : undefined;
    },
  };
}

/** `127.0.0.0/8` and `::1`, as sockets name them. */
export const isLoopbackAddress = (address: string): boolean =>
  address === "::1" || /^(::ffff:)?127\.\d+\.\d+\.\d+$/i.test(address);
