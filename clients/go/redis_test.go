// Package clients does with go-redis what an application does.
//
// PANDO_PORT names the port of a running server on 127.0.0.1.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

func connect(t *testing.T, protocol int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:" + os.Getenv("PANDO_PORT"),
		Protocol: protocol,
		PoolSize: 8,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func both(t *testing.T, run func(t *testing.T, client *redis.Client, prefix string)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			prefix := fmt.Sprintf("go%d:%s:", protocol, t.Name())
			run(t, connect(t, protocol), prefix)
		})
	}
}

func must[T any](t *testing.T, want T, got T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		t.Fatalf("want %v, got %v", want, got)
	}
}

func TestStrings(t *testing.T) {
	both(t, func(t *testing.T, client *redis.Client, prefix string) {
		key := prefix + "s"
		client.Del(background, key)
		set, err := client.SetNX(background, key, "40", time.Minute).Result()
		must(t, true, set, err)
		sum, err := client.IncrBy(background, key, 2).Result()
		must(t, 42, sum, err)
		remaining, err := client.TTL(background, key).Result()
		if err != nil || remaining <= 50*time.Second {
			t.Fatal(remaining, err)
		}
		if _, err := client.Get(background, prefix+"missing").Result(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	})
}

func TestPipeline(t *testing.T) {
	both(t, func(t *testing.T, client *redis.Client, prefix string) {
		replies, err := client.Pipelined(background, func(pipe redis.Pipeliner) error {
			for i := range 300 {
				pipe.Set(background, fmt.Sprint(prefix, i), i, 0)
				pipe.Get(background, fmt.Sprint(prefix, i))
			}
			return nil
		})
		must(t, 600, len(replies), err)
		for i := range 300 {
			got, err := replies[2*i+1].(*redis.StringCmd).Int()
			must(t, i, got, err)
		}
	})
}

func TestOptimisticTransactions(t *testing.T) {
	both(t, func(t *testing.T, client *redis.Client, prefix string) {
		key := prefix + "counter"
		client.Set(background, key, 0, 0)
		var group sync.WaitGroup
		for range 4 {
			group.Add(1)
			go func() {
				defer group.Done()
				for done := 0; done < 25; {
					err := client.Watch(background, func(tx *redis.Tx) error {
						value, err := tx.Get(background, key).Int()
						if err != nil {
							return err
						}
						_, err = tx.TxPipelined(background, func(pipe redis.Pipeliner) error {
							pipe.Set(background, key, value+1, 0)
							return nil
						})
						return err
					}, key)
					if err == nil {
						done++
					} else if !errors.Is(err, redis.TxFailedErr) {
						t.Error(err)
						return
					}
				}
			}()
		}
		group.Wait()
		total, err := client.Get(background, key).Int()
		must(t, 100, total, err)
	})
}

func TestScan(t *testing.T) {
	both(t, func(t *testing.T, client *redis.Client, prefix string) {
		for i := range 200 {
			client.Set(background, fmt.Sprint(prefix, i), i, 0)
		}
		seen := map[string]bool{}
		keys := client.Scan(background, 0, prefix+"*", 13).Iterator()
		for keys.Next(background) {
			seen[keys.Val()] = true
		}
		must(t, 200, len(seen), keys.Err())
	})
}

func TestHashes(t *testing.T) {
	both(t, func(t *testing.T, client *redis.Client, prefix string) {
		key := prefix + "h"
		client.Del(background, key)
		added, err := client.HSet(background, key, map[string]any{"name": "Pando", "trunks": 40000}).Result()
		must(t, 2, added, err)
		var row struct {
			Name   string `redis:"name"`
			Trunks int    `redis:"trunks"`
		}
		if err := client.HGetAll(background, key).Scan(&row); err != nil {
			t.Fatal(err)
		}
		must(t, "Pando 40000", fmt.Sprint(row.Name, " ", row.Trunks), nil)
		sum, err := client.HIncrByFloat(background, key, "trunks", 0.5).Result()
		must(t, 40000.5, sum, err)
	})
}

func TestReconnect(t *testing.T) {
	both(t, func(t *testing.T, client *redis.Client, prefix string) {
		victim := connect(t, 3)
		id, err := victim.ClientID(background).Result()
		if err != nil {
			t.Fatal(err)
		}
		killed, err := client.ClientKillByFilter(background, "ID", fmt.Sprint(id)).Result()
		must(t, 1, killed, err)
		done, err := victim.Set(background, prefix+"after", "x", 0).Result()
		must(t, "OK", done, err)
	})
}
