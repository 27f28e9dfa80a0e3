// Command bench measures what the README promises of sidehook's speed and size, each figure beside its yardstick in the
// same run:
//
//	go run ./sidecar/bench                 all figures; about half an hour
//	go run ./sidecar/bench -run gate       one experiment, or several separated by commas
//	go run ./sidecar/bench -ci             all in a short form with wider bounds
//
// It reads /proc and so runs on Linux only. The parts that are neither Envoy nor sidehook (an app, a service that allows
// everything, the load) are this program itself, started again as processes of their own. It exits 1 when a bound is
// missed. Figures of a machine that does something else beside are worth little; its load is printed with them.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			if err := role(os.Args[2:], os.Stdin, os.Stdout); err != nil {
				fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// settings are the flags, and what follows from them.
type settings struct {
	only     string
	ci       bool
	dir      string
	profile  string
	sidehook string
	requests int
	pairs    int
	conns    int
	ids      int
	queued   int
}

// bounds are the promised figures; the README repeats them.
type bounds struct {
	// gate is the least share of allow-all's rate through Envoy.
	gate float64
	// claims is the least share of bare bbolt's rate at many callers; claimMicroseconds is what one caller's claim
	// may take beyond a commit of its own.
	claims, claimMicroseconds float64
	// verify is how many times bare crypto/hmac's time a verification may take, verifyAllocs how many allocations more.
	verify, verifyAllocs float64
	// A store of many ids: its file, how many times an empty one's p99 a Check may take, how many times that again
	// while ids are purged, how long it may take to open, and how much more memory it may hold: what grows is bbolt's
	// list of free pages, not anything per id.
	idsFileGiB, idsSlower, idsPurging, idsOpenSeconds, idsMemoryMiB float64
	// Intake: the least share of a bare handler's rate, the least rate on a disk that syncs fast, and what a bare commit's
	// p99, four times, is added to for the p99 of an answer.
	acceptShare, acceptRate, acceptMilliseconds float64
	// Delivery: the least share of a bare client's rate, the least rate of posting and receiving together and its processor
	// time, the least rate to a slow receiver.
	deliverShare, togetherRate, togetherCPUSeconds, slowRate float64
	// How long after its 202 an event arrives on an idle system; how many times its p99 alone a healthy endpoint may have
	// beside one that hangs.
	singleMilliseconds, hungSlower float64
	// A restart with many queued.
	backlogSeconds, backlogMiB, againSeconds float64
	// STORE: the least share of allow-all's rate through Envoy, the app being there or not; the least rate of the worker to an app
	// that answers at once, and its share of a bare client's; the least share of that rate with events in order.
	store, workerRate, workerShare, order float64
	// An idle process with both halves, and its binary.
	idleAnonMiB, idleAllMiB, readyMilliseconds, binaryMiB float64
}

var (
	promised = bounds{gate: 0.60, claims: 0.6, claimMicroseconds: 100, verify: 1.5, verifyAllocs: 3,
		idsFileGiB: 2, idsSlower: 2, idsPurging: 2, idsOpenSeconds: 2, idsMemoryMiB: 24,
		acceptShare: 0.3, acceptRate: 10_000, acceptMilliseconds: 5,
		deliverShare: 0.4, togetherRate: 4000, togetherCPUSeconds: 2, slowRate: 4000,
		singleMilliseconds: 10, hungSlower: 1.5, backlogSeconds: 2, backlogMiB: 150, againSeconds: 2,
		store: 0.60, workerRate: 4000, workerShare: 0.25, order: 0.7,
		idleAnonMiB: 16, idleAllMiB: 42, readyMilliseconds: 300, binaryMiB: 44}
	// ciBounds leave room for short runs on shared machines, where the promised ones need quiet. What depends on no
	// clock has none.
	ciBounds = bounds{gate: 0.40, claims: 0.4, claimMicroseconds: 1000, verify: 2.5, verifyAllocs: 3,
		idsFileGiB: 2, idsSlower: 5, idsPurging: 5, idsOpenSeconds: 4, idsMemoryMiB: 16,
		acceptShare: 0.15, acceptRate: 0, acceptMilliseconds: 100,
		deliverShare: 0.2, togetherRate: 500, togetherCPUSeconds: 4, slowRate: 500,
		singleMilliseconds: 100, hungSlower: 5, backlogSeconds: 8, backlogMiB: 150, againSeconds: 8,
		store: 0.40, workerRate: 500, workerShare: 0.15, order: 0.4,
		idleAnonMiB: 18, idleAllMiB: 46, readyMilliseconds: 1500, binaryMiB: 44}
)

// experiment is one thing to measure, in a folder of its own.
type experiment struct {
	name, title string
	run         func(ctx context.Context, s settings, b bounds, folder string, out *report) error
}

var experiments = []experiment{
	{"binary", "the binary", binarySize},
	{"idle", "an idle sidehook", idle},
	{"verify", "verification", verify},
	{"inprocess", "claims in process", inprocess},
	{"gate", "through Envoy", gate},
	{"ids", "many ids", ids},
	{"accept", "intake", accept},
	{"deliver", "delivery", deliver},
	{"prompt", "promptness", promptness},
	{"backlog", "a backlog", backlog},
	{"store", "STORE through Envoy", storeGate},
	{"worker", "stored events to the app", worker},
	{"order", "stored events in order", order},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (ok bool, err error) {
	s, chosen, err := parse(args, stderr)
	if err != nil {
		return false, err
	}
	b := promised
	if s.ci {
		b = ciBounds
	}
	folder, err := os.MkdirTemp(s.dir, "sidehook-bench-")
	if err != nil {
		return false, err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(folder)
		} else {
			err = fmt.Errorf("%w (logs are in %s)", err, folder)
		}
	}()
	if s.sidehook == "" {
		if s.sidehook, err = buildSidehook(ctx, folder); err != nil {
			return false, err
		}
	}
	out := &report{out: stdout}
	out.printf("sidehook bench: %s %s/%s, %d processors, stores in %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), folder)
	for _, e := range chosen {
		out.section(e.title)
		if err := e.run(ctx, s, b, filepath.Join(folder, e.name), out); err != nil {
			return false, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return out.close(), nil
}

func parse(args []string, stderr io.Writer) (settings, []experiment, error) {
	var s settings
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	names := make([]string, len(experiments))
	for i, e := range experiments {
		names[i] = e.name
	}
	flags.StringVar(&s.only, "run", strings.Join(names, ","), "experiments, separated by commas")
	flags.BoolVar(&s.ci, "ci", false, "short runs and wider bounds; sizes given by other flags still hold")
	flags.StringVar(&s.dir, "dir", "", "folder for stores and logs, on the disk to measure (default: the temporary folder)")
	flags.StringVar(&s.profile, "profile", "", "write processor profiles of sidehook in gate, store, worker and deliver to this folder")
	flags.StringVar(&s.sidehook, "sidehook", "", "measure this binary instead of building one")
	flags.IntVar(&s.requests, "requests", 0, "requests a turn in gate (default 40000, with -ci 15000)")
	flags.IntVar(&s.pairs, "pairs", 0, "rounds of turns (default 5, with -ci 3)")
	flags.IntVar(&s.conns, "conns", 64, "connections in gate")
	flags.IntVar(&s.ids, "n", 0, "ids in ids (default 10000000, with -ci 200000)")
	flags.IntVar(&s.queued, "queued", 0, "events in backlog and worker (default 1000000, with -ci 50000)")
	if err := flags.Parse(args); err != nil {
		return s, nil, err
	}
	if flags.NArg() > 0 {
		return s, nil, fmt.Errorf("unexpected %q", flags.Args())
	}
	if s.ci {
		s.requests, s.pairs, s.ids = cmp.Or(s.requests, 15_000), cmp.Or(s.pairs, 3), cmp.Or(s.ids, 200_000)
		s.queued = cmp.Or(s.queued, 50_000)
	}
	s.requests, s.pairs, s.ids = cmp.Or(s.requests, 40_000), cmp.Or(s.pairs, 5), cmp.Or(s.ids, 10_000_000)
	s.queued = cmp.Or(s.queued, 1_000_000)
	if min(s.requests, s.pairs, s.ids, s.conns, s.queued) < 1 {
		return s, nil, errors.New("sizes must be positive")
	}
	var chosen []experiment
	wanted := strings.Split(s.only, ",")
	for _, e := range experiments {
		if slices.Contains(wanted, e.name) {
			chosen = append(chosen, e)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return s, nil, fmt.Errorf("no experiment %q, only %s", name, strings.Join(names, ", "))
		}
	}
	return s, chosen, nil
}
