package egress

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/internal/store/storetest"
)

func (b *recordsBench) mustStart(t testing.TB, spec JobSpec) Job {
	t.Helper()
	job, err := b.records.StartJob(context.Background(), spec)
	if err != nil {
		t.Fatalf("start job: %v", err)
	}
	return job
}

func (b *recordsBench) job(t testing.TB, id uint64) Job {
	t.Helper()
	job, err := b.records.Job(context.Background(), id)
	if err != nil {
		t.Fatalf("job: %v", err)
	}
	return job
}

// await sleeps until the job has ended; in a bubble, where that takes no time.
func (b *recordsBench) await(t testing.TB, id uint64) Job {
	t.Helper()
	for range 100_000 {
		if job := b.job(t, id); job.State != JobRunning {
			return job
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("job %d does not end: %+v", id, b.job(t, id))
	return Job{}
}

// TestJobRedeliversAll is case 81: 25,000 and more, all of them, paced, with progress.
func TestJobRedeliversAll(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openRecords(t, folder, 0)
		const total, rate = 25_000, 1000
		start := time.Now()
		dead := b.write(t, recordsBulk{rows: total, first: start.Add(-time.Hour), endpoint: "a", state: StateDead})
		other := b.write(t, recordsBulk{rows: 10, first: start.Add(-2 * time.Hour), endpoint: "b", state: StateDead})
		stop := b.run(t)
		job := b.mustStart(t, JobSpec{Kind: JobRedeliver, Filter: Filter{Endpoint: "a"}, Rate: rate})
		if job.Total != total || job.State != JobRunning || job.Filter.State != StateDead {
			t.Fatalf("job %+v, want %d dead letters", job, total)
		}
		time.Sleep(10 * time.Second)
		if done := b.job(t, job.ID).Done; done < 9*rate || done > 10*rate+rate/10 {
			t.Errorf("%d done after 10 s at %d/s", done, rate)
		}
		job = b.await(t, job.ID)
		if job.Done != total || job.Skipped != 0 || job.State != JobDone {
			t.Errorf("job %+v, want %d done", job, total)
		}
		if took := job.Ended.Sub(job.Started); took < total*time.Second/rate-jobTick || took > 2*total*time.Second/rate {
			t.Errorf("%d at %d/s took %v", total, rate, took)
		}
		b.mustHave(t, StateWaiting, dead...)
		b.mustHave(t, StateDead, other...)
		if r := b.row(t, dead[total-1]); r.Job != job.ID || !r.Redelivered {
			t.Errorf("row %+v, want it to name job %d", r, job.ID)
		}
		if _, heard := b.heard.take(); !slices.Contains(heard, "a") || slices.Contains(heard, "b") {
			t.Error("the dispatcher did not hear of a alone")
		}
		stop()
		b.mustEnd(t)
	})
}

// TestJobPace: what a job does in ten seconds, by its rate.
func TestJobPace(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rate     float64
		min, max int64
	}{
		{"the default", 0, 950, 1010},
		{"one in two seconds", 0.5, 5, 6},
		{"fast", 5000, 20_000, 20_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openRecords(t, folder, 0)
				b.write(t, recordsBulk{rows: 20_000, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateDead})
				stop := b.run(t)
				job := b.mustStart(t, JobSpec{Kind: JobRedeliver, Rate: tt.rate})
				time.Sleep(10 * time.Second)
				if got := b.job(t, job.ID).Done; got < tt.min || got > tt.max {
					t.Errorf("%d done in ten seconds, want %d to %d", got, tt.min, tt.max)
				}
				stop()
				b.mustEnd(t)
			})
		})
	}
}

// TestJobSurvivesARestart: it goes on where it was, and comes to nothing twice.
func TestJobSurvivesARestart(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const total = 3000
		b := openRecords(t, folder, 0)
		ids := b.write(t, recordsBulk{rows: total, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateDead})
		job := b.mustStart(t, JobSpec{Kind: JobRedeliver, Rate: 1000})
		for range 3 {
			stop := b.run(t)
			time.Sleep(500 * time.Millisecond)
			stop()
			b.mustEnd(t)
			b = openRecords(t, folder, 0)
		}
		restarted := time.Now()
		before := b.job(t, job.ID).Done
		if before < 1000 || before > 2000 || b.job(t, job.ID).State != JobRunning {
			t.Fatalf("%d done in a second and a half", before)
		}
		time.Sleep(time.Second)
		stop := b.run(t)
		if job = b.await(t, job.ID); job.Done != total || job.Skipped != 0 {
			t.Errorf("job %+v, want %d done", job, total)
		}
		stop()
		early := int64(0)
		for _, id := range ids {
			if !b.delivery(t, id).Created.After(restarted) {
				early++
			}
		}
		if early != before {
			t.Errorf("%d were redelivered before the restart, %d of them still are so", before, early)
		}
		b.mustEnd(t)
	})
}

// TestJobTakesWhatWasThere: neither what came nor what ended after the job was started.
func TestJobTakesWhatWasThere(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openRecords(t, folder, 0)
		dead := b.write(t, recordsBulk{rows: 100, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateDead})
		dying := b.mustAccept(t, boltEvent("dies later", "1"), "a").Deliveries[0].ID
		time.Sleep(time.Second)
		job := b.mustStart(t, JobSpec{Kind: JobRedeliver, Rate: 100})
		time.Sleep(time.Second)
		b.mustSettle(t, boltSettlement(b.delivery(t, dying), StateDead))
		later := b.mustAccept(t, boltEvent("comes later", "1"), "a").Deliveries[0].ID
		b.mustSettle(t, boltSettlement(b.delivery(t, later), StateDead))
		stop := b.run(t)
		time.Sleep(500 * time.Millisecond)
		// What the job redelivered and is dead again is not redelivered for ever.
		again := b.delivery(t, dead[0])
		if again.State != StateWaiting {
			t.Fatalf("the first is %s, want it redelivered", again.State)
		}
		b.mustSettle(t, boltSettlement(again, StateDead))
		job = b.await(t, job.ID)
		stop()
		if job.Total != 100 || job.Done != 100 || job.Skipped != 0 {
			t.Errorf("job %+v, want 100", job)
		}
		b.mustHave(t, StateDead, dying, later, dead[0])
		b.mustHave(t, StateWaiting, dead[1:]...)
		b.mustEnd(t)
	})
}

func TestJobIsCancelled(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openRecords(t, folder, 0)
		ids := b.write(t, recordsBulk{rows: 1000, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateDead})
		stop := b.run(t)
		first := b.mustStart(t, JobSpec{Kind: JobRedeliver, Rate: 100})
		time.Sleep(5 * time.Second)
		cancelled, err := b.records.CancelJob(t.Context(), first.ID)
		if err != nil || cancelled.State != JobCancelled || cancelled.Done < 400 || cancelled.Done > 600 {
			t.Fatalf("cancelled: %+v, %v", cancelled, err)
		}
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff(cancelled, b.job(t, first.ID)); diff != "" {
			t.Errorf("it went on (-when cancelled +later):\n%s", diff)
		}
		if got := int64(len(b.due(t, "a"))); got != cancelled.Done {
			t.Errorf("%d wait, want the %d that were done", got, cancelled.Done)
		}
		if _, err := b.records.CancelJob(t.Context(), first.ID); !errors.Is(err, ErrState) {
			t.Errorf("cancel twice: %v, want ErrState", err)
		}
		second := b.mustStart(t, JobSpec{Kind: JobDiscard, Filter: Filter{State: StateDead}})
		if second = b.await(t, second.ID); second.Done != int64(len(ids))-cancelled.Done {
			t.Errorf("second job %+v, want the rest", second)
		}
		jobs, err := b.records.Jobs(t.Context())
		if err != nil || len(jobs) != 2 || jobs[0].ID != second.ID || jobs[1].ID != first.ID {
			t.Errorf("jobs %+v, %v, want the newest first", jobs, err)
		}
		stop()
		b.mustEnd(t)
	})
}

// TestJobDiscards by the state that people see.
func TestJobDiscards(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openRecords(t, folder, 0)
		now := time.Now()
		parked := b.write(t, recordsBulk{rows: 3000, first: now.Add(-2 * time.Hour), endpoint: "a", state: StateWaiting, body: 100})
		waiting := b.write(t, recordsBulk{rows: 300, first: now.Add(-time.Hour), endpoint: "b", state: StateWaiting, body: 100})
		b.parked["a"] = true
		b.sending[waiting[0]] = true
		stop := b.run(t)
		if job := b.await(t, b.mustStart(t, JobSpec{Kind: JobDiscard, Filter: Filter{State: StateParked}}).ID); job.Total != 3000 || job.Done != 3000 {
			t.Errorf("job %+v, want 3000", job)
		}
		b.mustHave(t, StateDiscarded, parked...)
		b.mustHave(t, StateWaiting, waiting...)
		if got := b.rows(t, bodyBucket); got != len(waiting) {
			t.Errorf("%d bodies are left, want %d", got, len(waiting))
		}
		until := time.UnixMilli(seqTime(waiting[100].Event))
		spec := JobSpec{Kind: JobDiscard, Filter: Filter{State: StateWaiting, Endpoint: "b", Until: until}}
		if job := b.await(t, b.mustStart(t, spec).ID); job.Total != 99 || job.Done != 99 {
			t.Errorf("job %+v, want 99: one of a hundred is being sent", job)
		}
		b.mustHave(t, StateDiscarded, waiting[1:100]...)
		b.mustHave(t, StateWaiting, append(waiting[100:], waiting[0])...)
		stop()
		b.mustEnd(t)
	})
}

// TestJobSkips what cannot be sent again, and says so.
func TestJobSkips(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openRecords(t, folder, 0)
		now := time.Now()
		b.write(t, recordsBulk{rows: 300, first: now.Add(-time.Hour), endpoint: "a", state: StateDead})
		b.write(t, recordsBulk{rows: 20, first: now.Add(-2 * time.Hour), endpoint: "b", state: StateDead})
		b.write(t, recordsBulk{rows: 7, first: now.Add(-3 * time.Hour), endpoint: "b", state: StateDelivered})
		if err := b.SetEndpoints(t.Context(), []string{"b"}); err != nil {
			t.Fatal(err)
		}
		stop := b.run(t)
		dead := b.await(t, b.mustStart(t, JobSpec{Kind: JobRedeliver}).ID)
		if dead.Total != 320 || dead.Done != 20 || dead.Skipped != 300 {
			t.Errorf("dead ones: %+v, want 20 of 320", dead)
		}
		delivered := b.await(t, b.mustStart(t, JobSpec{Kind: JobRedeliver, Filter: Filter{State: StateDelivered}}).ID)
		if delivered.Total != 7 || delivered.Done != 0 || delivered.Skipped != 7 {
			t.Errorf("delivered ones: %+v, want 0 of 7", delivered)
		}
		nothing := b.await(t, b.mustStart(t, JobSpec{Kind: JobRedeliver, Filter: Filter{Endpoint: "none"}}).ID)
		if nothing.Total != 0 || nothing.Done != 0 {
			t.Errorf("nothing: %+v", nothing)
		}
		stop()
		b.mustEnd(t)
	})
}

// TestJobsRunSideBySide: a slow one does not hold up another.
func TestJobsRunSideBySide(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openRecords(t, folder, 0)
		b.write(t, recordsBulk{rows: 100, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateDead})
		b.write(t, recordsBulk{rows: 1000, first: time.Now().Add(-2 * time.Hour), endpoint: "b", state: StateDead})
		stop := b.run(t)
		slow := b.mustStart(t, JobSpec{Kind: JobRedeliver, Filter: Filter{Endpoint: "a"}, Rate: 1})
		time.Sleep(time.Second)
		fast := b.mustStart(t, JobSpec{Kind: JobRedeliver, Filter: Filter{Endpoint: "b"}, Rate: 500})
		time.Sleep(3 * time.Second)
		if got := b.job(t, fast.ID); got.State != JobDone || got.Done != 1000 {
			t.Errorf("fast job %+v after three seconds, want it done", got)
		}
		if got := b.job(t, slow.ID); got.Done < 3 || got.Done > 5 {
			t.Errorf("slow job %+v after four seconds, want four done", got)
		}
		stop()
		b.mustEnd(t)
	})
}

// TestJobOnAFailingDisk: a step that fails is done again, and one that was said to have failed is not counted twice.
func TestJobOnAFailingDisk(t *testing.T) {
	for _, written := range []bool{false, true} {
		for _, state := range []State{StateDead, StateWaiting} {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openRecords(t, folder, 0)
				ids := b.write(t, recordsBulk{rows: 100, first: time.Now().Add(-time.Hour), endpoint: "a", state: state, attempts: 1})
				job := b.mustStart(t, JobSpec{Kind: JobRedeliver, Filter: Filter{State: state}, Rate: 100})
				fault := storetest.Fault{Err: storetest.DiskFull, Written: written}
				b.faults.Next(fault, fault, storetest.Fault{}, fault)
				stop := b.run(t)
				if job = b.await(t, job.ID); job.Done != 100 || job.Skipped != 0 {
					t.Errorf("%s, written: %v: job %+v, want 100 done", state, written, job)
				}
				for _, id := range ids {
					if r := b.row(t, id); r.State != StateWaiting || r.Job != job.ID {
						t.Errorf("%s, written: %v: %+v, want it redelivered", state, written, r)
					}
				}
				stop()
				b.mustEnd(t)
			})
		}
	}
}

func TestStartJobRefuses(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	for _, tt := range []struct {
		name string
		spec JobSpec
	}{
		{"no kind", JobSpec{}},
		{"a kind that is none", JobSpec{Kind: jobKinds}},
		{"a discard of everything", JobSpec{Kind: JobDiscard}},
		{"a discard of what is delivered", JobSpec{Kind: JobDiscard, Filter: Filter{State: StateDelivered}}},
		{"a discard of what is under way", JobSpec{Kind: JobDiscard, Filter: Filter{State: StateSending}}},
		{"a redelivery of what is cancelled", JobSpec{Kind: JobRedeliver, Filter: Filter{State: StateCancelled}}},
		{"a state that is none", JobSpec{Kind: JobRedeliver, Filter: Filter{State: states}}},
		{"a reason that is none", JobSpec{Kind: JobRedeliver, Filter: Filter{Reason: outcomes}}},
		{"a negative rate", JobSpec{Kind: JobRedeliver, Rate: -1}},
		{"no rate at all", JobSpec{Kind: JobRedeliver, Rate: math.NaN()}},
		{"a rate beyond the bound", JobSpec{Kind: JobRedeliver, Rate: MaxJobRate + 1}},
	} {
		if _, err := b.records.StartJob(t.Context(), tt.spec); !errors.Is(err, ErrFilter) {
			t.Errorf("%s: %v, want ErrFilter", tt.name, err)
		}
	}
	if jobs, err := b.records.Jobs(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("%d jobs, %v, want none", len(jobs), err)
	}
	b.mustEnd(t)
}

func TestJobsAreBounded(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	b.write(t, recordsBulk{rows: 1, first: time.Now(), endpoint: "a", state: StateDead})
	for range keptJobs + 20 { // while nothing runs them
		job := b.mustStart(t, JobSpec{Kind: JobRedeliver})
		if _, err := b.records.CancelJob(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
	}
	for range maxRunningJobs {
		b.mustStart(t, JobSpec{Kind: JobRedeliver})
	}
	if _, err := b.records.StartJob(t.Context(), JobSpec{Kind: JobRedeliver}); !errors.Is(err, ErrJobs) || errors.Is(err, ErrUnavailable) {
		t.Errorf("one more: %v, want ErrJobs alone", err)
	}
	jobs, err := b.records.Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for _, j := range jobs {
		if j.State != JobRunning {
			ended++
		}
	}
	if running := len(jobs) - ended; running != maxRunningJobs || ended >= keptJobs {
		t.Errorf("%d jobs run and %d have ended, want %d and fewer than %d", running, ended, maxRunningJobs, keptJobs)
	}
	b.mustEnd(t)
}

func TestJobRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, number := rapid.StringN(0, 20, -1), rapid.Int64Range(0, math.MaxInt64)
		at := rapid.Custom(func(t *rapid.T) time.Time {
			if rapid.Bool().Draw(t, "none") {
				return time.Time{}
			}
			return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
		})
		millis := rapid.Custom(func(t *rapid.T) time.Time { return fromMillis(rapid.Int64Range(0, 1<<43).Draw(t, "ms")) })
		want := jobRow{
			Job: Job{
				ID: rapid.Uint64().Draw(t, "id"),
				JobSpec: JobSpec{
					Kind: JobKind(rapid.IntRange(1, int(jobKinds)-1).Draw(t, "kind")),
					Filter: Filter{
						Endpoint: text.Draw(t, "endpoint"), Tenant: text.Draw(t, "tenant"), Type: text.Draw(t, "type"),
						State:  State(rapid.IntRange(0, int(states)-1).Draw(t, "filter state")),
						Reason: Outcome(rapid.IntRange(0, int(outcomes)-1).Draw(t, "reason")),
						Since:  at.Draw(t, "since"), Until: at.Draw(t, "until"),
					},
					Rate: rapid.Float64Range(0, MaxJobRate).Draw(t, "rate"),
				},
				State:   JobState(rapid.IntRange(1, int(jobStates)-1).Draw(t, "state")),
				Started: millis.Draw(t, "started"), Ended: millis.Draw(t, "ended"),
				Total: number.Draw(t, "total"), Done: number.Draw(t, "done"), Skipped: number.Draw(t, "skipped"),
			},
			Last: rapid.Uint64().Draw(t, "last"),
			At:   DeliveryID{rapid.Uint64().Draw(t, "at event"), rapid.Uint32().Draw(t, "at endpoint")},
		}
		row := want.appendTo(nil)
		got, err := parseJob(appendSeq(nil, want.ID), row)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		for i := range row {
			if _, err := parseJob(appendSeq(nil, want.ID), row[:i]); err == nil {
				t.Fatalf("the first %d of %d bytes are a job", i, len(row))
			}
		}
		if _, err := parseJob(appendSeq(nil, want.ID), append(row, 0)); !errors.Is(err, errRow) {
			t.Fatalf("a byte too many: %v, want errRow", err)
		}
	})
}

func TestJobWords(t *testing.T) {
	t.Parallel()
	kinds := map[JobKind]string{JobRedeliver: "REDELIVER", JobDiscard: "DISCARD", 0: "JobKind(0)", jobKinds: "JobKind(3)"}
	for k, want := range kinds {
		if got := k.String(); got != want {
			t.Errorf("kind %d is %q, want %q", uint8(k), got, want)
		}
	}
	states := map[JobState]string{JobRunning: "RUNNING", JobDone: "DONE", JobCancelled: "CANCELLED", 0: "JobState(0)", jobStates: "JobState(4)"}
	for s, want := range states {
		if got := s.String(); got != want {
			t.Errorf("state %d is %q, want %q", uint8(s), got, want)
		}
	}
}
