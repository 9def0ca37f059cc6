/**
 * A resource as deny policies name it: `irn:svc:{org}:{project}:{type}:{environment}:{resource}`. The
 * environment is named by its id; patterns may also use its name.
 */
export interface Resource {
  orgId: string;
  /** `*` when the environment belongs to no project, or there is no environment. */
  projectId: string;
  type: string;
  /** `*` outside any environment. */
  environmentId: string;
  environmentName: string;
  /** The id of one resource; `*` when the operation acts on all of the type. */
  id: string;
  /** The id is itself a pattern: it means every name that it matches. */
  isPattern?: boolean | undefined;
}

/** The types of path segments and groups of actions in the plural; every other one is a type unchanged. */
const singulars: Readonly<Record<string, string>> = {
  functions: "function",
  runs: "run",
  repairs: "repair",
  replays: "replay",
  errors: "error",
  attributes: "attribute",
  events: "event",
  streams: "stream",
  projections: "projection",
  secrets: "secret",
  orgs: "org",
  roles: "role",
  policies: "policy",
  users: "user",
  sessions: "session",
  issuers: "issuer",
  projects: "project",
  webhooks: "webhook",
  alerts: "alert",
  "alert-rules": "alert",
  "agent:tools": "agent-tool",
};

export const singular = (segment: string): string =>
  Object.hasOwn(singulars, segment) ? singulars[segment]! : segment;

/** The type of an operation without a route, by the group of its action: `runs:cancel` is about a run. */
export const typeOfAction = (action: string): string => {
  const group = action.slice(0, action.lastIndexOf(":"));
  return group === "entities" ? "stream" : singular(group);
};

/** The type of a route: `/api/v1/runs/{id}/streams` is about a run. */
export function typeOfPath(path: string): string {
  const [, api, version, first = "", second] = path.split("/");
  const segment = api === "api" && version === "v1" ? first : (api ?? "");
  return singular(segment === "platform" && second !== undefined ? second : segment);
}

const segmentCount = 7;

/** Writes a colon inside a name as `%3A`: it would make two segments, and no pattern would match the name. */
const segment = (text: string): string =>
  text.includes(":") || text.includes("%") ? text.replaceAll("%", "%25").replaceAll(":", "%3A") : text;

const noResource: Resource = {
  orgId: "",
  projectId: "",
  type: "",
  environmentId: "",
  environmentName: "",
  id: "",
};
/** The last resource with its written names: it is compared with many patterns in a row. */
let last = { resource: noResource, written: noResource };

function written(resource: Resource): Resource {
  if (last.resource === resource) return last.written;
  const { orgId, projectId, type, environmentId, environmentName, id } = resource;
  const names: Resource = {
    orgId: segment(orgId),
    projectId: segment(projectId),
    type: segment(type),
    environmentId: segment(environmentId),
    environmentName: segment(environmentName),
    id: segment(id),
    isPattern: resource.isPattern,
  };
  last = { resource, written: names };
  return names;
}

export function irnOf(resource: Resource): string {
  const { orgId, projectId, type, environmentId, id } = written(resource);
  return `irn:svc:${orgId}:${projectId}:${type}:${environmentId}:${id}`;
}

export interface ResourcePattern {
  readonly text: string;
  /** Why the pattern cannot match anything in the scope; undefined when it can, or when that is unknown. */
  warning(where: PatternScope): string | undefined;
  matches(resource: Resource): boolean;
}

/** The scope in which a pattern should match something. */
export interface PatternScope {
  /** Undefined for platform policies, which bind callers in every org. */
  orgId: string | undefined;
  /** The resource types of all operations. */
  types: ReadonlySet<string>;
}

type SegmentTest = (text: string) => boolean;

/**
 * `*` matches any run of characters. Each piece takes its first fit: without backtracking the time stays
 * linear.
 */
export function part(pattern: string): SegmentTest {
  if (pattern === "*") return () => true;
  if (!pattern.includes("*")) return (written) => written === pattern;
  const pieces = pattern.split("*");
  return (written) => {
    if (!written.startsWith(pieces[0]!)) return false;
    let from = pieces[0]!.length;
    for (const piece of pieces.slice(1, -1)) {
      const at = written.indexOf(piece, from);
      if (at < 0) return false;
      from = at + piece.length;
    }
    const last = pieces.at(-1)!;
    return written.length - from >= last.length && written.endsWith(last);
  };
}

/** Whether two patterns match a common text; `*` is any run of characters in both. */
export function overlap(one: string, other: string): boolean {
  // What is left of the other may begin at these places, after so much of the one.
  let places = new Set([0]);
  const spread = (from: Set<number>) => {
    for (const at of from) if (other[at] === "*") from.add(at + 1);
    return from;
  };
  places = spread(places);
  for (const letter of one) {
    const next = new Set<number>();
    for (const at of places) {
      if (letter === "*") for (let rest = at; rest <= other.length; rest++) next.add(rest);
      else if (other[at] === "*") next.add(at);
      else if (other[at] === letter) next.add(at + 1);
    }
    places = spread(next);
    if (places.size === 0) return false;
  }
  return places.has(other.length);
}

const irnStart = "irn:svc:";

/**
 * Undefined unless the text is `*` or begins with `irn:svc:`. A wrong number of segments is legal and matches
 * nothing.
 */
export function parsePattern(text: string): ResourcePattern | undefined {
  if (text === "*") return { text, matches: () => true, warning: () => undefined };
  if (!text.startsWith(irnStart)) return undefined;
  const segments = text.split(":");
  if (segments.length !== segmentCount || segments.some((one) => one === ""))
    return {
      text,
      matches: () => false,
      warning: () =>
        "matches nothing: expected the seven segments irn:svc:{org}:{project}:{type}:{environment}:{resource}",
    };
  const [org, project, type, environment, id] = segments.slice(2).map(part) as [
    SegmentTest,
    SegmentTest,
    SegmentTest,
    SegmentTest,
    SegmentTest,
  ];
  return {
    text,
    matches(resource) {
      const names = written(resource);
      // A pattern outside any environment means what it matches in each of them.
      const isEverywhere = names.isPattern && names.environmentId === "*";
      return (
        type(names.type) &&
        (names.isPattern ? overlap(segments[6]!, names.id) : id(names.id)) &&
        (isEverywhere ||
          ((environment(names.environmentId) || environment(names.environmentName)) &&
            project(names.projectId))) &&
        org(names.orgId)
      );
    },
    warning({ orgId, types }) {
      if (orgId !== undefined && !org(segment(orgId))) return "matches nothing: it names another org";
      for (const known of types) if (type(segment(known))) return undefined;
      return `matches nothing: unknown resource type ${segments[4]!.slice(0, 80)}`;
    },
  };
}
