import MiniSearch from "minisearch";

/** A row of the index: one section of one page. */
export interface IndexRow {
  title: string;
  heading: string;
  text: string;
  href: string;
  /** What others call what its page is about. */
  words?: string;
}

const shownMax = 12;

/** Words of a line mean the same to who asks; ours and those of other systems. */
const sameWords = `
  deduplicate dedupe duplicate idempotency idempotent
  approval approve human
  sso oidc saml okta oauth google keycloak idp
  login signin password
  deploy deployment release rollout version
  upgrade migrate migration
  workflow function
  activity task step
  heartbeat lease
  sticky pin
  job run execution
  queue backlog
  stuck hang
  signal callback awakeable
  resume continue
  kill cancel terminate abort stop
  retry retries attempt backoff
  crash die died dead lost
  saga compensate compensation rollback undo
  parallel fanout fanin concurrent map
  child subworkflow invoke fanin
  schedule cron recurring periodic
  delay delayed later sleep timer wait
  throttle ratelimit rate limit
  concurrency limit
  poison deadletter dlq undeliverable
  canary bluegreen rolling
  dryrun rehearse rehearsal
  notify notification alert pager pagerduty slack mail email smtp
  debounce coalesce
  batch bulk
  priority
  tenant organization org customer
  role rbac permission authorization policy
  secret password credential encrypt encryption
  key token apikey
  rotate renew replace
  webhook callback
  signature hmac verify sign
  subscribe websocket realtime pubsub sse stream
  topic channel
  group consumer
  projection readmodel materialized view
  entity aggregate eventsourcing
  schema validate validation
  log logs logging
  trace tracing opentelemetry otel observability span
  metric metrics prometheus grafana alert monitoring
  backup restore recover disaster
  kubernetes k8s helm docker container
  cluster node ha replica failover
  database postgres postgresql libsql sqlite
  bouncer pgbouncer pooler
  erase delete gdpr pii purge redact retention forget
  cost billing metering chargeback usage
  language python go golang java client sdk
  test testing unit mock fake
  replay backfill reprocess
  timeout deadline expire ttl
  payload size large big
  version versioning patch
  audit history trail
  tool agent llm ai mcp
  environment env staging
`;

const stopWords = new Set(
  `a an the how to do does did i my me we our you your it its is are be can could should would what when where which who
  why if in on of for from with without and or not no after before by at as this that there into via use using get`.split(
    /\s+/,
  ),
);

/** Endings that change no meaning, for both the pages and who asks. */
export function stem(word: string): string {
  let root = word;
  if (root.length > 4) root = root.replace(/ies$/, "y").replace(/([^su])s$/, "$1");
  if (root.length > 5) root = root.replace(/(?:ing|ed|ion)$/, "").replace(/([bdgmnprt])\1$/, "$1");
  return root.length > 4 ? root.replace(/e$/, "") : root;
}

/** `lease_lost` is a word itself, and so are its parts. */
const plainWordsOf = (text: string): string[] =>
  (text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? []).flatMap((word) =>
    word.includes("_") ? [word, ...word.split("_").filter(Boolean)] : word,
  );

/** Pages that write `fan-out` are found by `fanout`, too. */
const wordsOf = (text: string): string[] => [
  ...plainWordsOf(text),
  ...(text.toLowerCase().match(/\p{L}+(?:-\p{L}+)+/gu) ?? []).map((word) => word.replaceAll("-", "")),
];

const same = new Map<string, Set<string>>();
for (const line of sameWords.trim().split("\n")) {
  const stems = plainWordsOf(line).map(stem);
  for (const one of stems) same.set(one, new Set([...(same.get(one) ?? []), ...stems]));
}

/** The words of who asks, each with those that mean the same: `fan out` is `fanout`. */
function askedWords(asked: string): { words: string[]; ofWord: Map<string, Set<string>> } {
  const plain = plainWordsOf(asked);
  const stemsOf = (some: readonly string[]) => [...new Set(some.map(stem))];
  const telling = stemsOf(plain.filter((word) => !stopWords.has(word)));
  const words = telling.length > 0 ? telling : stemsOf(plain);
  const ofWord = new Map<string, Set<string>>();
  const add = (term: string, meant: readonly string[]) => {
    for (const one of [term, ...(same.get(term) ?? [])])
      ofWord.set(one, new Set([...(ofWord.get(one) ?? []), ...meant.filter((word) => words.includes(word))]));
  };
  for (const word of words) add(word, [word]);
  for (const [at, second] of plain.slice(1).entries()) {
    const first = plain[at]!;
    const joined = stem(first + second);
    if (same.has(joined)) add(joined, [stem(first), stem(second)]);
  }
  return { words, ofWord };
}

/** Pages to look things up in have every word somewhere. */
const weights: Readonly<Record<string, number>> = {
  ...{ changelog: 0.24, glossary: 0.43, wire: 0.43, reference: 0.54, limits: 0.54, commands: 0.65 },
  ...{ answers: 0.65, errors: 0.65 },
};
const pageOf = ({ href }: IndexRow): string => /^\/docs\/([^#]*)/.exec(href)?.[1] ?? "";

const sumOf = (words: Iterable<string>, weightOf: (word: string) => number): number =>
  [...words].reduce((sum, word) => sum + weightOf(word), 0);

/** What a word tells: one that stands in few sections more than one that stands in most. */
function openWordWeights(rows: readonly IndexRow[]): (word: string) => number {
  const found = new Map<string, number>();
  for (const { heading, title, words = "", text } of rows)
    for (const word of new Set(wordsOf([heading, title, words, text].join(" ")).map(stem)))
      found.set(word, (found.get(word) ?? 0) + 1);
  return (word) => {
    const alike = [...(same.get(word) ?? [])].map((one) => found.get(one) ?? 0);
    return Math.log(1 + rows.length / (1 + (found.get(word) ?? Math.max(0, ...alike))));
  };
}

/** Finds sections by whole words first, then by their beginnings and by words that are spelt nearly so. */
export function openFinding(rows: readonly IndexRow[]): (asked: string) => IndexRow[] {
  const index = new MiniSearch({
    fields: ["heading", "title", "words", "text"],
    tokenize: wordsOf,
    processTerm: stem,
  });
  index.addAll(rows.map((row, id) => ({ ...row, id })));
  const weightOf = openWordWeights(rows);

  return (asked) => {
    const { words, ofWord } = askedWords(asked);
    if (words.length === 0) return [];
    const found = index.search([...ofWord.keys()].join(" "), {
      tokenize: (text) => text.split(" "),
      processTerm: (term) => term,
      boost: { heading: 1.8, title: 1.15, words: 8 },
      bm25: { k: 2.4, b: 0.8, d: 0.44 },
      boostTerm: (term) => (words.includes(term) ? 1 : 0.25),
      prefix: (term) => words.includes(term) && term.length > 2,
      fuzzy: (term) => (words.includes(term) && term.length > 4 ? 0.2 : false),
      weights: { prefix: 0.2, fuzzy: 0.07 },
    });
    const scored = found.map(({ id, score, queryTerms }) => {
      const row = rows[id as number]!;
      const covered = new Set(queryTerms.flatMap((term) => [...(ofWord.get(term) ?? [])]));
      const share = sumOf(covered, weightOf) / sumOf(words, weightOf);
      const page = pageOf(row);
      return { row, page, score: score * share ** 1.5 * (weights[page] ?? 1) };
    });
    return pagesFirst(scored.toSorted((a, b) => b.score - a.score)).slice(0, shownMax);
  };
}

interface Scored {
  row: IndexRow;
  page: string;
  score: number;
}

/** The best section of each page, then the others: one page does not hide the rest. */
function pagesFirst(scored: readonly Scored[]): IndexRow[] {
  const pages = [...Map.groupBy(scored, ({ page }) => page).values()];
  const worth = ([first, second, third]: readonly Scored[]) =>
    first!.score + 0.43 * (second?.score ?? 0) + 0.25 * (third?.score ?? 0);
  const heads = pages.toSorted((a, b) => worth(b) - worth(a)).map(([first]) => first!.row);
  return [...heads, ...scored.map(({ row }) => row).filter((row) => !heads.includes(row))];
}
