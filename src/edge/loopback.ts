import { Fault } from "../kit/fault.ts";

/** What tells where a request comes from and what it takes this server for. */
export interface RequestSource {
  /** With the port. */
  host: string | null | undefined;
  origin: string | null | undefined;
  /** `Sec-Fetch-Site` */
  site: string | null | undefined;
}

/** `localhost`, `127.0.0.0/8` and `[::1]`, any port: names that no other machine's page can have. */
function isLoopback(authority: string): boolean {
  if (!/^[A-Za-z0-9.:[\]-]+$/.test(authority) || !URL.canParse(`http://${authority}`)) return false;
  const { hostname } = new URL(`http://${authority}`);
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}

const originPattern = /^https?:\/\/([^/?#@]+)$/;

function isLoopbackOrigin(origin: string): boolean {
  const [, authority] = originPattern.exec(origin) ?? [];
  return authority !== undefined && isLoopback(authority);
}

const refusal = (what: string): Fault =>
  new Fault(
    "permission_denied",
    `a --dev server answers this machine's own pages and programs only: ${what}`,
  );

/**
 * Where everybody is let in, whatever page a browser shows could call: so only callers that name this machine
 * are answered (a name that was rebound to it does not), and no page from elsewhere.
 */
export function refusalOfStranger({ host, origin, site }: RequestSource): Fault | undefined {
  if (!host || !isLoopback(host)) return refusal("Host is no loopback name");
  if (origin !== null && origin !== undefined)
    return isLoopbackOrigin(origin) ? undefined : refusal("Origin is no loopback origin");
  return site === "cross-site" ? refusal("another site's page asks") : undefined;
}

export const refusalOfRequest = ({ headers }: Pick<Request, "headers">): Fault | undefined =>
  refusalOfStranger({
    host: headers.get("host"),
    origin: headers.get("origin"),
    site: headers.get("sec-fetch-site"),
  });
