package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/sidecar/config"
)

func newStore(std stdio) *cobra.Command {
	return group("store", "Check and back up the store",
		`Commands on the store, the folder that store.bolt.path of the configuration names.

One process has the store at a time. A running sidehook's is backed up through its admin API; to check it, check the
backup.`,
		newStoreCheck(std), newStoreBackup(std),
	)
}

// storeOptions are the flags of `store check`.
type storeOptions struct {
	config configFlag
	format outputFlag
}

func newStoreCheck(std stdio) *cobra.Command {
	var o storeOptions
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a stopped sidehook's store, or a backup, from end to end",
		Long: `Check a stopped sidehook's store, or the backup in FILE, from end to end: every page is used once, every key is in its
order, every row can be read and the counters are right. It changes nothing.

Exit code 0 if it is sound, 1 if it is not, 3 if it cannot be read or a running sidehook has it.`,
		Args: args(0, 1),
		RunE: func(c *cobra.Command, a []string) error {
			if len(a) == 1 {
				return storeCheck(c.Context(), std, a[0], "no sidehook starts with it, take another backup", o.format)
			}
			folder, err := o.config.storeFolder()
			if err != nil {
				return err
			}
			return storeCheck(c.Context(), std, filepath.Join(folder, store.FileName),
				"put a backup in its place while sidehook is stopped, or remove it and lose what it remembers", o.format)
		},
	}
	o.config.register(c)
	o.format.register(c)
	return c
}

// storeFolder returns where the configuration keeps its store.
func (f configFlag) storeFolder() (string, error) {
	c, err := f.load(config.WithoutSecrets())
	if err != nil {
		return "", err
	}
	if c.Store == nil {
		return "", no(fmt.Errorf("%s: no store section", c.Path))
	}
	return c.Store.Path, nil
}

// storeReport is what `store check -o` prints.
type storeReport struct {
	File      string   `json:"file"`
	Sound     bool     `json:"sound"`
	Rows      uint64   `json:"rows"`
	Pages     uint64   `json:"pages"`
	FreePages uint64   `json:"free_pages"`
	Bytes     uint64   `json:"bytes"`
	Problems  []string `json:"problems"`
}

// rowChecks judge the rows of both halves, and of what came in and is kept for the app.
func rowChecks() store.Rows {
	return store.AllRows(new(extauthz.RowCheck), new(egress.RowCheck), store.RowsIn(egress.StoredSpace, new(egress.RowCheck)))
}

func storeCheck(ctx context.Context, std stdio, file, remedy string, format outputFlag) error {
	found, err := store.Check(ctx, file, rowChecks())
	if _, locked := errors.AsType[*store.LockedError](err); locked {
		return fmt.Errorf("%w\nstop it, or check a backup: sidehook store backup FILE, then sidehook store check FILE", err)
	}
	if err != nil {
		return err
	}
	r := storeReport{
		File: file, Sound: len(found.Problems) == 0, Rows: found.Rows, Pages: found.Pages, FreePages: found.FreePages,
		Bytes: found.Pages * uint64(found.PageSize), Problems: []string{},
	}
	for _, p := range found.Problems {
		r.Problems = append(r.Problems, p.Error())
	}
	if format.structured() {
		err = format.print(std.out, r)
	} else {
		err = printStoreReport(std.out, &r)
	}
	if err == nil && !r.Sound {
		return no(fmt.Errorf("%s is broken: %s", file, remedy))
	}
	return err
}

func printStoreReport(w io.Writer, r *storeReport) error {
	e := &explainer{w: w}
	if r.Sound {
		e.line("%s: sound, %s, %s of which %d%% are free", r.File, plural(int(r.Rows), "row"), bytesText(int64(r.Bytes)),
			r.FreePages*100/max(r.Pages, 1))
	}
	for _, p := range r.Problems {
		e.line("%s: %s", r.File, p)
	}
	return e.err
}

func newStoreBackup(std stdio) *cobra.Command {
	var admin adminFlags
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a copy of the store to a new file",
		Long: `Write a copy of the store, as it is after the last commit, to FILE, which must not be there yet.

The copy comes from the running sidehook, through its admin API; where none answers at admin.listen of the configuration,
it is taken from the store's folder. FILE appears once it is whole, synced and checked; only its owner may read it.
To use it, stop sidehook and put it into the store's folder as ` + store.FileName + `.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return storeBackup(c.Context(), std, admin, a[0]) },
	}
	admin.register(c)
	return c
}

func storeBackup(ctx context.Context, std stdio, admin adminFlags, file string) error {
	err := writeNew(file, func(f *os.File) error {
		err := backupFromAPI(ctx, admin, f)
		if admin.addr == "" && unreachable(err) {
			err = backupFromFolder(ctx, admin.config, f)
		}
		if err != nil {
			return err
		}
		found, err := store.Check(ctx, f.Name(), rowChecks())
		if err == nil && len(found.Problems) > 0 {
			err = no(fmt.Errorf("the copy is not sound, and neither is the store: %w", errors.Join(found.Problems...)))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("back up to %s: %w", file, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: %s, checked\n", printable(file), bytesText(info.Size()))
	return err
}

// backupFromAPI copies the store of the running sidehook to w.
func backupFromAPI(ctx context.Context, admin adminFlags, w io.Writer) error {
	client, err := admin.connect()
	if err != nil {
		return err
	}
	stream, err := client.long.BackUpStore(ctx, connect.NewRequest(&inboxv1.BackUpStoreRequest{}))
	if err != nil {
		return client.explain(err)
	}
	for stream.Receive() {
		if _, err := w.Write(stream.Msg().GetData()); err != nil {
			return errors.Join(err, stream.Close())
		}
	}
	if err := stream.Err(); err != nil {
		return errors.Join(client.explain(err), stream.Close())
	}
	return stream.Close()
}

// backupFromFolder copies a stopped sidehook's store to w.
func backupFromFolder(ctx context.Context, c configFlag, w io.Writer) error {
	folder, err := c.storeFolder()
	if err != nil {
		return err
	}
	// Open would make a store where there is none.
	if _, err := os.Stat(filepath.Join(folder, store.FileName)); err != nil {
		return fmt.Errorf("no sidehook answers, and there is no store to copy: %w", err)
	}
	s, err := store.Open(ctx, store.Options{Folder: folder})
	if err != nil {
		return err
	}
	return errors.Join(s.WriteTo(ctx, w), s.Close())
}

// writeNew makes file with what fill writes: whole and synced, or not at all.
func writeNew(file string, fill func(*os.File) error) (err error) {
	if _, err := os.Lstat(file); err == nil {
		return no(errors.New("the file exists; choose another name"))
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), file); err != nil { // it refuses what appeared there meanwhile
		return err
	}
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close()) // the name too survives a power cut
}
