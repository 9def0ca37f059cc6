export type Engine = "postgres" | "libsql";
export type Figures = Record<string, number>;

/** What is wanted of a figure: at least or at most a value. */
export interface Target {
  figure: string;
  of: "least" | "most";
  value: Record<Engine, number | undefined>;
}

/** One scenario on one engine: medians of its rounds, and what the rounds lay between. */
export interface Result {
  engine: Engine;
  scenario: string;
  rounds: number;
  /** Rounds thrown away because the floors before and after them differed. */
  voids: number;
  /** No round had two equal floors: the figures are those of the void ones, and prove nothing. */
  void: boolean;
  medians: Figures;
  least: Figures;
  most: Figures;
  /** All of them as they came, void ones included. */
  each: readonly Round[];
}

export interface Round {
  figures: Figures;
  /** How far the floors before and after lay apart, as a share of their mean. */
  drift: number;
}

export const driftMax = 0.15;

/** The value that `share` of the sorted values lie below; 0 of none. */
export const percentile = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length % 2 === 1 ? sorted[Math.floor(middle)]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

export function resultOf(engine: Engine, scenario: string, rounds: readonly Round[]): Result {
  const sound = rounds.filter((round) => round.drift <= driftMax);
  const kept = sound.length > 0 ? sound : rounds;
  const each = (pick: (values: readonly number[]) => number): Figures =>
    Object.fromEntries(
      Object.keys(kept[0]?.figures ?? {}).map((name) => [
        name,
        pick(kept.map((round) => round.figures[name] ?? 0)),
      ]),
    );
  return {
    engine,
    scenario,
    rounds: kept.length,
    voids: rounds.length - sound.length,
    void: sound.length === 0,
    medians: each(median),
    least: each((values) => Math.min(...values)),
    most: each((values) => Math.max(...values)),
    each: rounds,
  };
}

const text = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 3);

/** Lines of a table: figure, median, worst, target, whether the median meets it; then every round, `!` after a void one. */
export function show(result: Result, about: string, targets: readonly Target[]): string {
  const trust = result.void ? "VOID, the floors differed in every round" : `${result.rounds} rounds`;
  const head = `${result.engine}, ${result.scenario}: ${about} [${trust}; ${result.voids} void]`;
  const each = (name: string) =>
    result.each
      .map(({ figures, drift }) => text(figures[name] ?? 0) + (drift > driftMax ? "!" : ""))
      .join(" ");
  const lines = Object.entries(result.medians).map(([name, value]) => {
    const target = targets.find((one) => one.figure === name);
    const wanted = target?.value[result.engine];
    const [least, most] = [text(result.least[name]!), text(result.most[name]!)];
    const worst = target ? `worst ${target.of === "least" ? least : most}` : `${least} - ${most}`;
    let verdict = "";
    if (target && wanted !== undefined) {
      const met = target.of === "least" ? value >= wanted : value <= wanted;
      verdict =
        `${target.of === "least" ? ">=" : "<="} ${wanted}`.padEnd(9) +
        (result.void ? "not judged" : met ? "met" : "MISSED");
    }
    return `  ${name.padEnd(16)}${text(value).padStart(9)}  ${worst.padEnd(18)}${verdict.padEnd(20)}${each(name)}`;
  });
  return [head, ...lines].join("\n");
}
