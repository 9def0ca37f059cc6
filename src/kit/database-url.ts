import type { Kind } from "./setting.ts";

/**
 * A URL of libpq's form as one URL for each host, or what is wrong with it: words that repeat nothing of the
 * text, which holds a password.
 */
export type DatabaseUrl = { ok: true; urls: readonly string[] } | { ok: false; flaw: string };

const databaseHostsMax = 16;
const portMax = 65_535;
/** What libpq's `target_session_attrs` may ask for: a server that only reads is of no use here. */
const sessionAttrs = ["read-write", "primary"];
/** Where libpq reads hosts as well; the driver would send these to the server as settings. */
const hostParameters = ["host", "hostaddr", "port"];

const name = /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(\d*))?$/;

/** Why one host of the list cannot be meant. */
function flawOf(host: string, which: string): string | undefined {
  const [, , port] = name.exec(host) ?? [];
  if (!name.test(host)) return `${which} must be a name or an address, commas between hosts are not encoded`;
  if (port !== undefined && !(Number(port) >= 1 && Number(port) <= portMax))
    return `the port of ${which} must be from 1 to ${portMax}`;
  return undefined;
}

/** `postgres://user:password@one:5432,two:5433/database?target_session_attrs=read-write` */
export function readDatabaseUrl(text: string): DatabaseUrl {
  const [, scheme, authority = "", rest = ""] = /^(postgres(?:ql)?:\/\/)([^/?#]*)(.*)$/s.exec(text) ?? [];
  const broken = (flaw: string): DatabaseUrl => ({ ok: false, flaw });
  if (scheme === undefined) return broken("it starts with neither postgres:// nor postgresql://");
  const at = authority.lastIndexOf("@") + 1;
  const hosts = authority.slice(at).split(",");
  if (hosts.length > databaseHostsMax) return broken(`at most ${databaseHostsMax} hosts`);
  const urls: string[] = [];
  for (const [place, host] of hosts.entries()) {
    const which = hosts.length === 1 ? "the host" : `host ${place + 1}`;
    // A URL without any host means the driver's own: PGHOST, else this machine.
    const flaw = host === "" && hosts.length === 1 ? undefined : flawOf(host, which);
    if (flaw !== undefined) return broken(flaw);
    const url = URL.parse(`${scheme}${authority.slice(0, at)}${host}${rest}`);
    if (!url) return broken("it is no URL: characters such as / ? # @ in a password are encoded");
    const attrs = url.searchParams.get("target_session_attrs");
    if (attrs !== null && !sessionAttrs.includes(attrs))
      return broken(`target_session_attrs must be ${sessionAttrs.join(" or ")}`);
    const parameter = hostParameters.find((one) => url.searchParams.has(one));
    if (parameter !== undefined)
      return broken(`hosts stand before the database's name, not in ${parameter}=`);
    // Every connection is asked by us; the driver would try again without end.
    url.searchParams.delete("target_session_attrs");
    urls.push(url.href);
  }
  return { ok: true, urls };
}

export const databaseUrl: Kind<string> = {
  rule: "a URL such as postgres://user:password@host:5432/database, several hosts with commas between",
  shown: "URL",
  read: (text) => (readDatabaseUrl(text).ok ? text : undefined),
  flawOf(text) {
    const read = readDatabaseUrl(text);
    return read.ok ? undefined : read.flaw;
  },
};
