import type { Law } from "./tidy-law.ts";
import type { Rule } from "./tidy-rules.ts";
import { codeOf, lineAt } from "./tidy-source.ts";

const declared = /^ {2}(\w+): setting\(/gm;
/**
 * `config.port`, `{ port, dev: isOpen } = config`, `({ port }: Pick<Config, "port">)`. The config is `paths` in
 * `kit/secret-files.ts` and `written` in the audit, which know no settings.
 */
const reads = [
  /\b(?:config|paths|written)\.(\w+)/g,
  /\{([^{}]*)\}\s*(?:=\s*(?:\w+\.)*(?:config|paths)\b|:\s*(?:Pick<)?Config\b)/g,
];

/** A setting that nothing reads looks as if it changed something. */
const settingBreaches: Rule = (sources) => {
  const read = new Set(
    sources.flatMap(({ text }) => {
      const code = codeOf(text);
      return reads.flatMap((pattern) =>
        [...code.matchAll(pattern)].flatMap((match) => match[1]!.match(/\w+/g) ?? []),
      );
    }),
  );
  return sources
    .filter(({ path }) => path.startsWith("src/settings/"))
    .flatMap(({ path, text }) =>
      [...text.matchAll(declared)]
        .filter((match) => !read.has(match[1]!))
        .map((match) => `${path}:${lineAt(text, match.index)}: nothing reads config.${match[1]}`),
    );
};

export const settingsAreRead: Law = {
  name: "every setting is read",
  rule: settingBreaches,
  bad: [
    ["src/settings/requests.ts", "export const requestSettings = {\n  labelsMax: setting({ env }),\n};", 2],
  ],
  good: [
    ["src/settings/requests.ts", "  one: setting({\n  two: setting({\n  three: setting({\n// config.four\n"],
    ["src/app/log.ts", "open(config.one); const { two: second } = host.config;"],
    ["src/store/open.ts", 'const open = ({ three }: Pick<Config, "three">) => three;'],
  ],
};

/** An INTEGER has 32 bits on PostgreSQL and 64 on libSQL: what one engine stores the other would refuse. */
const numberBreaches: Rule = (sources) =>
  sources
    .filter(({ path }) => /^src\/store\/(migrations|tables)\//.test(path))
    .flatMap(({ path, text }) =>
      [
        ...text.matchAll(/\b(INTEGER|INT[248]?|SMALLINT|(BIG|SMALL)?SERIAL|NUMERIC|REAL|FLOAT\d?|DOUBLE)\b/g),
      ].map((match) => `${path}:${lineAt(text, match.index)}: numbers are BIGINT, not ${match[0]}`),
    );

export const numbersAreWide: Law = {
  name: "numbers in tables are BIGINT",
  rule: numberBreaches,
  bad: [
    [
      "src/store/migrations/0030_labels.ts",
      '\n"CREATE TABLE labels (id TEXT, position INTEGER NOT NULL)"',
      2,
    ],
  ],
  good: [
    ["src/store/migrations/0030_labels.ts", '"CREATE TABLE labels (id TEXT, position BIGINT NOT NULL)"'],
  ],
};
