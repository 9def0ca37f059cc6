/**
 * What an operation is about, as deny policies name it:
 * `irn:svc:{org}:{project}:{type}:{environment}:{resource}` (proto/README.md 'Resource names'). The
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
  /** Of one thing; `*` when the operation is about all of its kind. */
  id: string;
  /** The id stands for all names that it matches. */
  isPattern?: boolean | undefined;
}

/** Path segments that have a singular; every other one is a type as it stands. */
const singulars: Readonly<Record<string, string>> = {
  functions: "function",
  runs: "run",
  events: "event",
  streams: "stream",
  projections: "projection",
  secrets: "secret",
  orgs: "org",
  roles: "role",
  policies: "policy",
  users: "user",
  projects: "project",
};

export const singular = (segment: string): string =>
  Object.hasOwn(singulars, segment) ? singulars[segment]! : segment;

/** The type of an operation without a route, by the group of its action: `runs:cancel` is about a run. */
export const typeOfAction = (action: string): string => {
  const group = action.slice(0, action.lastIndexOf(":"));
  return group === "entities" ? "stream" : singular(group);
};

/** `/api/v1/runs/{id}/streams` is about a run. */
export function typeOfPath(path: string): string {
  const [, api, version, first = "", second] = path.split("/");
  const segment = api === "api" && version === "v1" ? first : (api ?? "");
  return singular(segment === "platform" && second !== undefined ? second : segment);
}

const segmentCount = 7;

/** A colon inside a name would make two segments of it, and no pattern would match: it is written `%3A`. */
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
/** One resource is held against many patterns in a row: its names are written once. */
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
  /** Why it can match nothing in the org, where that is known. */
  warning(where: PatternScope): string | undefined;
  matches(resource: Resource): boolean;
}

/** Where a pattern is meant to match. */
export interface PatternScope {
  /** Undefined where policies bind callers in any org. */
  orgId: string | undefined;
  /** Of all operations. */
  types: ReadonlySet<string>;
}

type Part = (text: string) => boolean;

/** `*` stands for any run of characters. Takes the first place where each piece fits: no way back, so no blow-up. */
export function part(pattern: string): Part {
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

/** Whether some text is matched by both; `*` stands for any run of characters in either. */
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

/** Undefined when the text is neither `*` nor begins as a name does. One of other segments than names have is legal. */
export function parsePattern(text: string): ResourcePattern | undefined {
  if (text === "*") return { text, matches: () => true, warning: () => undefined };
  if (!text.startsWith(irnStart)) return undefined;
  const segments = text.split(":");
  if (segments.length !== segmentCount || segments.some((one) => one === ""))
    return {
      text,
      matches: () => false,
      warning: () =>
        "matches nothing: it has not the seven segments irn:svc:{org}:{project}:{type}:{environment}:{resource}",
    };
  const [org, project, type, environment, id] = segments.slice(2).map(part) as [Part, Part, Part, Part, Part];
  return {
    text,
    matches(resource) {
      const names = written(resource);
      return (
        type(names.type) &&
        (names.isPattern ? overlap(segments[6]!, names.id) : id(names.id)) &&
        (environment(names.environmentId) || environment(names.environmentName)) &&
        project(names.projectId) &&
        org(names.orgId)
      );
    },
    warning({ orgId, types }) {
      if (orgId !== undefined && !org(segment(orgId))) return "matches nothing: it names another org";
      for (const known of types) if (type(segment(known))) return undefined;
      return `matches nothing: there is no resource of type ${segments[4]!.slice(0, 80)}`;
    },
  };
}
