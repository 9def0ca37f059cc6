import { chanceOf } from "../support/chance.ts";
import { livedTime } from "../support/lived.ts";
import { isNight } from "../support/night.ts";
import type { EngineName, TestServer, TestServerOptions } from "../support/server.ts";
import { until } from "../support/until.ts";
import { minters } from "./races-calls.ts";
import { orphans, uncovered } from "./races-judge.ts";
import type { Minter, Product } from "./races-minters.ts";
import { type Revoker, revokers } from "./races-revokers.ts";
import {
  clear,
  openWorld,
  type Stage,
  type StandingName,
  setStage,
  tagsOf,
  type World,
  works,
} from "./races-stage.ts";
import type { AttackResult, AttackSuite } from "./suite.ts";

/** A revocation beside what makes or uses a right; the second begins so many milliseconds after the first. */
interface Attempt {
  revoker: Revoker;
  minter: Minter;
  offsetMs: number;
  /** Nodes, as chance has it. */
  nodes: [revoker: number, minter: number];
}

const offsetsMs = [-60, -25, -8, 0, 8, 25, 60] as const;
/** At once: the more, the less time is lost with waiting, and the less even the offsets are. */
const attemptsAtOnce = 16;
/** What is promised, counted from both answers. */
const promisedMs = 1_000;

/** Whether there is anything that the one could leave behind of the other. */
const concerns = ({ kills }: Revoker, { under, needs }: Minter) =>
  kills.some((tag) => under.includes(tag) || needs.some((name) => tagsOf[name].includes(tag)));

export const pairs = revokers.flatMap((revoker) =>
  minters.filter((minter) => concerns(revoker, minter)).map((minter) => ({ revoker, minter })),
);

const titleOf = ({ revoker, minter, offsetMs, nodes }: Attempt, engine: EngineName) =>
  `${engine}: ${revoker.name} at node ${nodes[0] + 1}, ${minter.name} at node ${nodes[1] + 1} ${offsetMs} ms later`;

interface Raced {
  attempt: Attempt;
  stage: Stage;
  revoked: number;
  product: Product | undefined;
  breaches: string[];
}

async function race(world: World, attempt: Attempt, id: string): Promise<Raced> {
  const { revoker, minter, offsetMs } = attempt;
  const names = new Set<StandingName>([...revoker.needs, ...minter.needs]);
  const stage = await setStage(world, id, names);
  await revoker.prepare?.(stage);
  const at = (node: number) => world.nodes[node] as TestServer;
  const after = async <T>(ms: number, work: () => Promise<T>) => {
    await until(() => performance.now() >= beganAt + ms, { about: "its turn", everyMs: 1 });
    return work();
  };
  const beganAt = performance.now();
  const [revoked, minted] = await Promise.all([
    after(Math.max(0, -offsetMs), () => revoker.run(stage, at(attempt.nodes[0]))),
    after(Math.max(0, offsetMs), () => minter.run(stage, at(attempt.nodes[1]))),
  ]);
  const breaches: string[] = [];
  const title = titleOf(attempt, world.engine);
  const isExcluded = minter.excludes?.includes(revoker.operation) && minted.status < 300;
  if (revoked.status >= 300 && !isExcluded)
    breaches.push(`${title}: the revocation was answered ${revoked.status} ${JSON.stringify(revoked.body)}`);
  if (minted.status === 500) breaches.push(`${title}: the other was answered 500`);
  return { attempt, stage, revoked: revoked.status, product: minted.product, breaches };
}

/** What still works of what must not. */
async function judge({ attempt, stage, revoked, product, breaches }: Raced): Promise<string[]> {
  const { revoker, minter } = attempt;
  const title = titleOf(attempt, stage.world.engine);
  const isDead = (tags: readonly string[]) =>
    revoked < 300 && revoker.kills.some((tag) => tags.includes(tag));
  const found = [...breaches];
  for (const [name, { text, tags }] of Object.entries(stage.standing))
    if (isDead(tags) && (await works(stage, name as StandingName, text)))
      found.push(`${title}: the ${name} of before still works`);
  if (product && isDead(minter.under) && (await product.works()))
    found.push(`${title}: what came of "${minter.name}" still works`);
  product?.close?.();
  return found;
}

/** What each makes works when nothing is taken away: else that it does not work says nothing. */
async function control(world: World, minter: Minter, id: string): Promise<string[]> {
  const stage = await setStage(world, id, new Set(minter.needs));
  const about = `${world.engine}: "${minter.name}" alone`;
  const run = () => minter.run(stage, world.nodes.at(-1) as TestServer);
  let made = await run();
  // A role that was just made at one node may grant nothing yet at another one.
  const isGranted = async () => {
    if (made.status === 403) made = await run();
    return made.status !== 403;
  };
  await until(isGranted, { about, deadlineMs: 2 * promisedMs, everyMs: 100 }).catch(() => {});
  const { status, product } = made;
  if (status >= 300) return [`${about} was answered ${status}`];
  const found: string[] = [];
  for (const [name, { text, tags }] of Object.entries(stage.standing))
    if (!minter.under.some((tag) => tag === "password") && minter.operation !== "users.changePassword")
      if (
        tags.length > 0 &&
        minter.operation !== "keys.rotate" &&
        !(await works(stage, name as StandingName, text))
      )
        found.push(`${about}: the ${name} of before does not work`);
  if (product && !(await product.works())) found.push(`${about}: what came of it does not work`);
  product?.close?.();
  return found;
}

export interface RaceOptions {
  seed: number;
  engines: readonly EngineName[];
  /** How many attempts, by chance, each pair at one offset; all at every offset when left out. */
  most?: number;
  /** Only those, by the names of both, at every offset. */
  only?: (revoker: string, minter: string) => boolean;
  aroundStore?: TestServerOptions["aroundStore"];
  log(line: string): void;
}

async function raceOn(engine: EngineName, options: RaceOptions) {
  const chance = chanceOf(`races/${options.seed}/${engine}`);
  const shuffled = <T>(list: readonly T[]) =>
    list
      .map((one) => ({ one, at: chance.number() }))
      .toSorted((a, b) => a.at - b.at)
      .map(({ one }) => one);
  const world = await openWorld(engine, options.aroundStore);
  const time = await livedTime(world.nodes[0]?.home.place.databaseUrl);
  const breaches: string[] = [];
  let number = 0;
  const nextId = () => (++number).toString(36);
  try {
    breaches.push(...uncovered(world.nodes[0]!.running.registry));
    const isSample = options.most !== undefined && !options.only;
    const known = new Set(world.nodes[0]!.running.registry.map(({ name }) => name));
    const possible = pairs.filter(
      ({ revoker, minter }) =>
        known.has(revoker.operation) && (options.only?.(revoker.name, minter.name) ?? true),
    );
    const all = possible.flatMap((pair) =>
      (isSample ? [chance.oneOf(offsetsMs)] : offsetsMs).map((offsetMs): Attempt => {
        const node = () => chance.between(0, world.nodes.length - 1);
        const laterMs = chance.between(0, pair.revoker.computesMs ?? 0);
        return { ...pair, offsetMs: offsetMs + laterMs, nodes: [node(), node()] };
      }),
    );
    // Every revocation before any comes twice.
    const turns = new Map<Revoker, number>();
    const attempts = shuffled(all)
      .map((attempt) => {
        const turn = turns.get(attempt.revoker) ?? 0;
        turns.set(attempt.revoker, turn + 1);
        return { attempt, turn };
      })
      .toSorted((a, b) => a.turn - b.turn)
      .slice(0, options.most ?? all.length)
      .map(({ attempt }) => attempt);
    const alone = options.most === undefined ? minters : shuffled(minters).slice(0, attemptsAtOnce / 2);
    for (const slice of slices(options.only ? [] : alone, attemptsAtOnce))
      breaches.push(...(await Promise.all(slice.map((minter) => control(world, minter, nextId())))).flat());
    let done = 0;
    for (const slice of slices(attempts, attemptsAtOnce)) {
      const raced = await Promise.all(slice.map((attempt) => race(world, attempt, nextId())));
      const answeredAt = time.now();
      await until(() => time.now() - answeredAt > promisedMs, { about: "the time that is promised" });
      breaches.push(...(await Promise.all(raced.map(judge))).flat());
      await Promise.all(raced.map(({ stage }) => clear(stage)));
      breaches.push(
        ...(await orphans(world.nodes[0]!.running.domain.store)).map(
          (orphan) =>
            `${engine}: ${orphan}, after one of: ${slice.map((one) => titleOf(one, engine)).join("; ")}`,
        ),
      );
      done += slice.length;
      options.log(`${engine}: ${done} of ${attempts.length}, ${breaches.length} got through`);
    }
    return { attempts: attempts.length, pairs: possible.length, breaches };
  } finally {
    await time.stop();
    await world.stop();
  }
}

function slices<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, at) =>
    list.slice(at * size, (at + 1) * size),
  );
}

export async function raceMatrix(options: RaceOptions): Promise<AttackResult> {
  let attempts = 0;
  let most = 0;
  const breaches: string[] = [];
  for (const engine of options.engines) {
    const result = await raceOn(engine, options);
    attempts += result.attempts;
    most = Math.max(most, result.pairs);
    breaches.push(...result.breaches);
  }
  return {
    size: `${revokers.length} revocations x ${minters.length} uses, ${most} pairs that concern each other, ${offsetsMs.length} offsets`,
    attempts,
    breaches,
  };
}

/** What CI has the time for, an engine. */
const shortAttempts = isNight ? 32 : 12;

export const suite: AttackSuite = {
  name: "races",
  about: "takes a right away while somebody uses it, or makes something by it",
  run: ({ seed, long, engines, log }) =>
    raceMatrix({ seed, engines, log, ...(!long && { most: shortAttempts }) }),
};
