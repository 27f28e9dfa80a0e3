package main

import (
	"path/filepath"

	"go.etcd.io/bbolt"
)

const (
	// A row of the yardstick is as long as one of the inbox: a key with a source's name and an id of 30 bytes, a value
	// with times, lease and token.
	bareKeyBytes   = 38
	bareValueBytes = 40
	// bareMapBytes and bareGrowth are the store's own settings: bbolt's defaults would be slower, which would flatter us.
	bareMapBytes = 8 << 30
	bareGrowth   = 16 << 20
)

var bareBucket = []byte("bare")

// bareBolt is bbolt without anything of ours: one Put for each caller, and one commit for all callers that wait.
type bareBolt struct {
	db    *bbolt.DB
	queue chan barePut
	ended chan struct{}
	value []byte
}

type barePut struct {
	key  []byte
	done chan<- error
}

// openBare makes one in folder whose rows have values of valueBytes.
func openBare(folder string, valueBytes int) (*bareBolt, error) {
	db, err := bbolt.Open(filepath.Join(folder, "bare.db"), 0o600,
		&bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: bareMapBytes})
	if err != nil {
		return nil, err
	}
	db.AllocSize = bareGrowth
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(bareBucket)
		return err
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	b := &bareBolt{db: db, queue: make(chan barePut, 1024), ended: make(chan struct{}),
		value: make([]byte, valueBytes)}
	go b.run()
	return b, nil
}

func (b *bareBolt) run() {
	defer close(b.ended)
	var batch []barePut
	for first := range b.queue {
		batch = append(batch[:0], first)
		for range len(b.queue) {
			batch = append(batch, <-b.queue)
		}
		err := b.update(batch)
		for _, put := range batch {
			put.done <- err
		}
	}
}

func (b *bareBolt) update(batch []barePut) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bareBucket)
		for _, put := range batch {
			if err := bucket.Put(put.key, b.value); err != nil {
				return err
			}
		}
		return nil
	})
}

// put writes a row with the next commit.
func (b *bareBolt) put(key []byte) error {
	done := make(chan error, 1)
	b.queue <- barePut{key, done}
	return <-done
}

// close ends the committer; nobody may put any more.
func (b *bareBolt) close() error {
	close(b.queue)
	<-b.ended
	return b.db.Close()
}
