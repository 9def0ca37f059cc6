import { codeOf, importsOf, lineAt, type Source } from "./tidy-source.ts";

/** A rule takes sources and answers its breaches, each as `path:line: what is wrong`. */
export type Rule = (sources: Source[]) => string[];

export function matches(
  sources: Source[],
  pattern: RegExp,
  say: (found: string) => string,
  view = codeOf,
): string[] {
  return sources.flatMap(({ path, text }) =>
    [...view(text).matchAll(pattern)].map(
      (match) => `${path}:${lineAt(text, match.index)}: ${say(match[0].trim())}`,
    ),
  );
}

export const within = (...prefixes: string[]) => {
  return ({ path }: Source) => prefixes.some((prefix) => path.startsWith(prefix));
};

/** Packages that one place alone may know. */
const drivers: { about: string; package: RegExp; places: RegExp }[] = [
  { about: "PostgreSQL's driver", package: /^postgres$/, places: /^src\/store\/postgres[\w-]*\.ts$/ },
  {
    about: "a SQLite driver",
    package: /^(libsql|@libsql\/.*|bun:sqlite|node:sqlite)$/,
    places: /^src\/store\/libsql[\w-]*\.ts$/,
  },
  { about: "NATS", package: /^(nats|@nats-io\/.*)$/, places: /^src\/bus\/nats(-[a-z]+)?\.ts$/ },
  { about: "Prometheus' client", package: /^prom-client$/, places: /^src\/edge\/metrics\.ts$/ },
  { about: "OpenTelemetry", package: /^@opentelemetry\/.*$/, places: /^src\/edge\/traces\.ts$/ },
];

export const driverBreaches: Rule = (sources) =>
  sources.flatMap((source) =>
    importsOf(source).flatMap((one) => {
      const driver = one.ours ? undefined : drivers.find((known) => known.package.test(one.target));
      if (!driver || driver.places.test(source.path)) return [];
      return [`${source.path}:${one.line}: ${driver.about} is imported outside its place: ${one.target}`];
    }),
  );

/** What ships may use dependencies only: neither development tools nor what another package happens to bring. */
export const packageBreaches =
  (allowed: string[]): Rule =>
  (sources) =>
    sources.flatMap((source) =>
      importsOf(source).flatMap((one) => {
        if (one.ours || /^(node|bun):|^bun$/.test(one.target)) return [];
        const name = one.target
          .split("/")
          .slice(0, one.target.startsWith("@") ? 2 : 1)
          .join("/");
        if (allowed.includes(name)) return [];
        return [`${source.path}:${one.line}: ${name} is not among the dependencies of package.json`];
      }),
    );

const timeAndChance =
  /\bDate\.now\b|\bnew Date\(\s*\)|\bnew Date\b(?!\s*\()|\bperformance\.now\b|\bMath\.random\b|\bcrypto\.(randomUUID|getRandomValues)\b|(?<!\w|(?<!globalThis)\.)(setTimeout|setInterval)\b|\bBun\.(sleep|sleepSync|nanoseconds|randomUUIDv7)\b/g;
/** SDK, demo, CLI and dashboard run in users' processes and pages, under the clock that is there. */
const ownClock = within(
  "src/kit/clock.ts",
  "src/kit/ids.ts",
  "src/kit/loop.ts",
  "src/sdk/",
  "src/demo/",
  "src/cli/",
  "src/dashboard/",
);

const timerImports: Rule = (sources) =>
  sources.flatMap((source) =>
    importsOf(source)
      .filter((one) => /^(node:)?timers(\/|$)/.test(one.target))
      .map((one) => `${source.path}:${one.line}: timers are handed in: ${one.target}`),
  );

export const clockBreaches: Rule = (sources) => {
  const bound = sources.filter((source) => !ownClock(source));
  const say = (found: string) => `time and chance are handed in (Clock, Ids of src/kit): ${found}`;
  return [...matches(bound, timeAndChance, say), ...timerImports(bound)];
};

/** Copying what was sent onto an object lets a name of its own become that object's prototype. */
const takesInput = within("src/edge/", "src/domain/", "src/kit/", "src/gate/");

export const assignBreaches: Rule = (sources) =>
  matches(
    sources.filter(takesInput),
    /\bObject\.assign\b/g,
    () => "a name that was sent may become the prototype: spread it, or set names one by one",
  );

export const linesMax = 400;

export const lengthBreaches: Rule = (sources) =>
  sources.flatMap(({ path, text }) => {
    const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
    return lines > linesMax ? [`${path}:${linesMax + 1}: ${lines} lines, at most ${linesMax}`] : [];
  });

export const commentLettersMax = 110;

/** Letters are counted from the start of the line. A comment after code belongs to the line of the code. */
export const commentBreaches: Rule = (sources) =>
  sources.flatMap(({ path, text }) =>
    text.split("\n").flatMap((line, index) => {
      const letters = line.length;
      if (letters <= commentLettersMax || !/^\s*(\/\/|\/?\*)/.test(line)) return [];
      return [`${path}:${index + 1}: a comment line of ${letters} letters, at most ${commentLettersMax}`];
    }),
  );

export const exportBreaches: Rule = (sources) =>
  matches(sources, /\bexport\s+default\b|\bas\s+default\b/g, () => "exports are named");

// Put together here, so that this file passes its own rule.
const unfinishedWords = ["TO" + "DO", "FIX" + "ME", "X" + "XX", "not " + "implemented"];
const unfinished = new RegExp(`\\b(${unfinishedWords.join("|")})\\b`, "g");

export const unfinishedBreaches: Rule = (sources) =>
  matches(
    sources,
    unfinished,
    (found) => `a mark of something unfinished: ${found}`,
    (text) => text,
  );

export const extensionBreaches: Rule = (sources) =>
  sources.flatMap((source) =>
    importsOf(source).flatMap((one) =>
      !one.ours || /\.\w+$/.test(one.target)
        ? []
        : [`${source.path}:${one.line}: imports name the file with its ending`],
    ),
  );

/** Faults, benches and clusters are about real time; support is where polling lives. */
const realTime = within("test/support/", "test/bench/", "test/fault/", "test/cluster/");

export const sleepBreaches: Rule = (sources) => {
  const bound = sources.filter((source) => !realTime(source));
  const say = (found: string) => `tests poll a condition (test/support/until.ts) or tick a loop: ${found}`;
  const sleeps = /\bBun\.sleep(Sync)?\b|(?<!\w|(?<!globalThis)\.)setTimeout\b/g;
  return [...matches(bound, sleeps, say), ...timerImports(bound)];
};

export const skippedBreaches: Rule = (sources) =>
  matches(sources, /\b(test|it|describe)\.(skip|todo|only)\b/g, (found) => `every test runs: ${found}`);

/**
 * Rows are locked in one order, else two transactions wait for each other. One row by its key needs none, and what skips
 * locked rows waits for nobody.
 */
export const lockBreaches: Rule = (sources) =>
  sources.flatMap(({ path, text }) =>
    [...text.matchAll(/\bFOR (NO KEY )?UPDATE\b(?! (OF \w+ )?SKIP LOCKED)|\bseams\.holdRow\b/g)].flatMap(
      (match) => {
        const before = text.slice(0, match.index);
        const comment = /^\s*(\/\/|\/?\*)/.test(before.slice(before.lastIndexOf("\n") + 1));
        const query = before.slice(Math.max(before.lastIndexOf("SELECT"), before.lastIndexOf("sql`")));
        const oneRow = /=\s*\$\{/.test(query) && !/\b(IN|ANY|JOIN|rowsFrom|unnest)\b/.test(query);
        if (comment || oneRow || /\bORDER BY\b/.test(query)) return [];
        return [
          `${path}:${lineAt(text, match.index)}: rows are locked in the order of their keys: ORDER BY before ${match[0]}`,
        ];
      },
    ),
  );
