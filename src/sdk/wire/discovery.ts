import { nodeFs } from "./node-builtin.ts";

/** A server that announced itself in the folder where a program stands, or above it. */
export interface DiscoveredServer {
  url: string;
  /** Empty for none; for this server alone. */
  apiKey: string;
  environment: string;
  /** The file that says so. */
  file: string;
}

const place = ".svc/engine.json";
const bytesMax = 64 * 1024;
const othersMay = 0o077;
const own = /^(127(\.\d{1,3}){3}|\[::1\]|localhost)$/;

const isSet = (value: string | undefined): boolean =>
  value !== undefined && value !== "" && value !== "0" && value !== "false";

/**
 * What the nearest `.svc/engine.json` of this user says, from `folder` upwards; undefined where none is,
 * in browsers, and with `SVC_NO_DISCOVERY`. A folder may be a stranger's: a file that others may read, or
 * that names another machine, is refused by a TypeError, and one of another user is passed over.
 */
export function discoveredServer(
  folder = globalThis.process?.cwd?.(),
  isOff = globalThis.process?.env?.SVC_NO_DISCOVERY,
): DiscoveredServer | undefined {
  // Without owners and modes of files nothing tells whose a file is.
  const me = globalThis.process?.getuid?.();
  const fs = nodeFs();
  if (folder === undefined || me === undefined || fs === undefined || isSet(isOff)) return undefined;
  for (let at = folder; ; at = at.slice(0, at.lastIndexOf("/"))) {
    const file = `${at}/${place}`;
    const text = ownText(fs, file, me);
    if (text !== undefined) return read(file, text);
    if (at === "" || !at.includes("/")) return undefined;
  }
}

/** The whole text of a file of this user; undefined for none. */
function ownText(fs: NonNullable<ReturnType<typeof nodeFs>>, file: string, me: number): string | undefined {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
  let handle: number;
  try {
    handle = fs.openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch {
    return undefined;
  }
  try {
    const found = fs.fstatSync(handle);
    const { uid, mode, size } = found;
    if (uid !== me || !found.isFile()) return undefined;
    if (mode & othersMay) throw refused(file, "others on this machine may read or change it: chmod 600 it");
    if (size > bytesMax) throw refused(file, "it is too long");
    return fs.readFileSync(handle, "utf8");
  } finally {
    fs.closeSync(handle);
  }
}

function read(file: string, text: string): DiscoveredServer {
  let said: Record<string, unknown>;
  try {
    said = Object(JSON.parse(text));
  } catch {
    throw refused(file, "it is not JSON");
  }
  const { version, url, api_key: apiKey, environment } = said;
  if (version !== 1) throw refused(file, "its version is not 1");
  if (typeof url !== "string" || !URL.canParse(url)) throw refused(file, "its url is none");
  if ([apiKey, environment].some((one) => one !== undefined && one !== null && typeof one !== "string"))
    throw refused(file, "api_key and environment must be texts");
  const { protocol, hostname, username, password, pathname, search, hash } = new URL(url);
  const isPlain = username + password + search + hash === "" && pathname === "/";
  if (!/^https?:$/.test(protocol) || !isPlain || !own.test(hostname))
    throw refused(file, "its url is not http:// or https:// with an address of this machine alone");
  return {
    ...{ url: url.replace(/\/$/, ""), file },
    ...{ apiKey: (apiKey as string | null) ?? "", environment: (environment as string | null) ?? "" },
  };
}

/** What it says is not shown: it may be a key, or a stranger's text. */
const refused = (file: string, why: string): TypeError =>
  new TypeError(
    `${file}: ${why}. Name the server (url, SVC_SERVER_URL), or set SVC_NO_DISCOVERY=1 to pass such files over`,
  );
